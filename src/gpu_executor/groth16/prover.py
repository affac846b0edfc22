"""The MSMs of a proof on a device.

    witness -+-> digits of the signals of A and C ----> A, C        (G1)
             +-> digits of the signals of B ----------> B1 (G1), B2 (G2)
             +-> quotient -> digits of h -------------> H           (G1)

`ResidentProver` has the points of a key in device memory and submits one graph for a proof. Signals
whose points are all at infinity are not in its lists. `StreamedProver` is for keys that do not fit
the device: the points of each MSM are copied from the file.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice
from gpu_executor.curves import Curve
from gpu_executor.groth16.blinding import EXTRA, Blinding, ProofSums, extend_points
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.quotient import Quotient
from gpu_executor.groth16.zkey_file import ZkeyFile
from gpu_executor.msm.joint import BeginStage, JointMsm, PointSet, ScalarList, ignore_stage
from gpu_executor.msm.prepared import CapturedSteps
from gpu_executor.msm.run import run_on_device
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.ops.indexing import gather_rows
from gpu_executor.ops.points import AFFINE, add, make_points, to_affine
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv

Words = npt.NDArray[Any]
SECTIONS = ("a", "c", "b1", "h", "b2")
"""The sections of a key with an MSM, in the order of results: those of G1, then that of G2."""


class PendingSums:
    """The MSMs of a proof that a device computes."""

    def __init__(self, curve: ProofCurve, g1: DeviceArray, g2: DeviceArray) -> None:
        """`g1` and `g2` are affine points in the order of `SECTIONS`."""
        self._curve, self._arrays = curve, (g1, g2)

    def fetch(self) -> ProofSums:
        """Wait for the device."""
        found: list[Point] = []
        for group, array in zip((self._curve.g1, self._curve.g2), self._arrays, strict=True):
            found += get_arithmetic(group.key).load(array.numpy())
        return ProofSums(*found)


class Prover(Protocol):
    """What computes the MSMs of proofs. Threads may share it. All of its arrays with values of a
    witness are secret, so the device overwrites them when they are gone."""

    @property
    def device(self) -> ArrayDevice:
        """The device that computes."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that stay while it is there."""

    def submit(self, witness: Words, blinding: Blinding) -> PendingSums:
        """Begin with a proof of a witness: words (signals, 8), in canonical form."""


def upload_scalars(device: ArrayDevice, curve: ProofCurve, scalars: Words) -> DeviceArray:
    """Scalars of words (n, 8) on the device, as elements in canonical form."""
    prime = curve.scalar_field.prime
    values = np.ascontiguousarray(scalars).view(prime.column_dtype)
    return device.put_ahead(values.reshape((-1, *prime.element_shape)))


class SignalList:
    """Signals with one list of digits: those that have a finite point in some section, and the
    extra scalars."""

    def __init__(self, device: ArrayDevice, finite: npt.NDArray[np.bool_]) -> None:
        """`finite` says which signals and extra scalars have such a point."""
        self.count = int(np.count_nonzero(finite))
        self._positions = device.put(np.flatnonzero(finite).astype(np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self._positions.nbytes

    def select(self, values: DeviceArray) -> DeviceArray:
        """The entries of the first axis of an array that belong to the signals of the list."""
        return gather_rows(values, self._positions)


class ResidentProver:
    """The points of a key in device memory, and the recorded commands of a proof."""

    def __init__(
        self,
        device: ArrayDevice,
        curve: ProofCurve,
        quotient: Quotient,
        signals: int,
        lists: tuple[SignalList, SignalList],
        sets: Mapping[str, PointSet],
        glv: Glv | None,
    ) -> None:
        """`lists` are those of A and C, and of B. `sets` are the points of all sections, arranged
        by these lists. With `glv`, scalars are halved."""
        self.device, self._curve = device, curve
        self._lock = threading.Lock()
        prime = curve.scalar_field.prime
        self._lists, self._quotient = lists, quotient
        counts, shape = (lists[0].count, lists[1].count), (signals + EXTRA, *prime.element_shape)
        with device.secret_arrays():
            self._witness = device.empty(shape, prime.column_dtype)
            self._msm = plan_joint_msm(device, curve, counts, sets, glv)
            with CapturedSteps(device, reorders=True) as self._commands:
                found = self.compute()
        self._results = found[curve.g1.key], found[curve.g2.key]
        points = sum(each.points.nbytes for each in sets.values())
        self._own_bytes = points + quotient.nbytes + sum(each.nbytes for each in lists)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of points and matrices, without those of one proof."""
        return self._own_bytes

    def compute(self, begin: BeginStage = ignore_stage) -> dict[CurveKey, DeviceArray]:
        """Submit the MSMs of a proof of the witness that is on the device. `begin` is called before
        each stage: benchmarks record them one by one."""
        begin("signals", None)
        factors = [each.select(self._witness) for each in self._lists]
        begin("quotient", None)
        return self._msm.run([*factors, self._quotient.compute(self._witness)], begin)

    def replay(self) -> None:
        """Submit the recorded commands of a proof of the witness that is on the device."""
        self._commands.replay()

    def submit(self, witness: Words, blinding: Blinding) -> PendingSums:
        """Begin with a proof of a witness."""
        device, signals = self.device, len(witness)
        both = witness, blinding.list_scalars()
        with device.secret_arrays():
            uploaded = [upload_scalars(device, self._curve, each) for each in both]
            results = [device.empty(each.shape, each.dtype) for each in self._results]
            targets = self._witness[:signals], self._witness[signals:]
            with self._lock:  # the submissions of one proof follow each other
                device.submit(list(map(ArrayCopy, uploaded, targets)))
                self.replay()
                device.submit(list(map(ArrayCopy, self._results, results)))
        del uploaded
        device.overwrite_secrets()
        return PendingSums(self._curve, *results)


def plan_joint_msm(
    device: ArrayDevice,
    curve: ProofCurve,
    counts: tuple[int, int],
    sets: Mapping[str, PointSet],
    glv: Glv | None,
) -> JointMsm:
    """The MSMs of a proof: two lists of the witness, with so many scalars, and one of the
    quotient."""
    images = 1 if glv is None else 2
    scalars = [
        ScalarList(counts[0], (sets["a"], sets["c"])),
        ScalarList(counts[1], (sets["b1"], sets["b2"])),
        ScalarList(len(sets["h"].points) // images, (sets["h"],)),
    ]
    return JointMsm(device, scalars, curve.r.bit_length(), glv)


class StreamedProver:
    """The points of a key in its file, which are copied to the device for each proof."""

    def __init__(
        self, device: ArrayDevice, zkey: ZkeyFile, quotient: Quotient, h: Words, glv: Glv | None
    ) -> None:
        """`h` are the points of the section H in the order of the quotient."""
        self.device, self._zkey, self._quotient = device, zkey, quotient
        self._h, self._glv = h, glv

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of the matrices."""
        return self._quotient.nbytes

    def submit(self, witness: Words, blinding: Blinding) -> PendingSums:
        """Begin with a proof of a witness; most of the MSMs are computed here."""
        with self.device.secret_arrays():
            g1, g2 = self._compute(witness, blinding)
        self.device.overwrite_secrets()
        return PendingSums(self._zkey.curve, g1, g2)

    def _compute(self, witness: Words, blinding: Blinding) -> tuple[DeviceArray, DeviceArray]:
        """The MSMs of each group."""
        device, zkey, curve = self.device, self._zkey, self._zkey.curve
        values = upload_scalars(device, curve, witness)
        extra = upload_scalars(device, curve, blinding.list_scalars())
        quotient = self._quotient.compute(values)
        sums = []
        for name in SECTIONS:
            group = curve.g2 if name == "b2" else curve.g1
            points = self._h if name == "h" else getattr(zkey, name)
            scalars = {"c": values[zkey.n_public + 1 :], "h": quotient}.get(name, values)
            found = self._run(group, points, scalars)
            if name != "h":
                own = self._run(group, extend_points(zkey, name), extra)
                found = add(group.key, found, own)
            sums.append(to_affine(group.key, found))
        g1 = make_points(device, curve.g1.key, len(sums) - 1, coordinates=AFFINE)
        for number, each in enumerate(sums[:-1]):
            device.assign(g1[number], each)
        return g1, sums[-1].reshape((1, *sums[-1].shape))

    def _run(self, group: Curve, points: Words, scalars: DeviceArray) -> DeviceArray:
        glv = None if self._glv is None else group.glv
        return run_on_device(self.device, group.key, points, scalars, (), glv)
