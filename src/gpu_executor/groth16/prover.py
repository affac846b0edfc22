"""The MSMs of a proof on a device: points of a key that stay there, and commands recorded once.

    witness -+-> digits of the signals of A and C ----> A, C        (G1)
             +-> digits of the signals of B ----------> B1 (G1), B2 (G2)
             +-> quotient -> digits of h -------------> H           (G1)

Signals whose points are all at infinity are dropped when a key is loaded. `Prover` has all points in
device memory and submits one graph for a proof. `StreamedProver` is for keys that do not fit: it
copies the points of one MSM after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.quotient import Quotient
from gpu_executor.msm.joint import JointMsm, ScalarList
from gpu_executor.msm.prepared import CapturedSteps
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.primes.curve_key import CurveKey

Words = npt.NDArray[Any]
Positions = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ProofSums:
    """The MSMs of a proof, ahead of its blinding."""

    a: Point
    b1: Point
    b2: Point
    c: Point
    """With the quotient: the sum over C and H."""


@dataclass(frozen=True, eq=False)
class KeyPoints:
    """Points of a key in affine form: words in host memory, or arrays on the device."""

    a: Any
    b1: Any
    b2: Any
    c: Any
    """A point for each signal that is neither the constant 1 nor public."""
    h: Any


class SignalList:
    """Signals whose points are in one list of digits: all that have a finite point in some set."""

    def __init__(self, device: ArrayDevice, finite: npt.NDArray[np.bool_]) -> None:
        self.count = int(np.count_nonzero(finite))
        self._positions: DeviceArray | None = None
        if self.count < len(finite):
            self._positions = device.put(np.flatnonzero(finite).astype(np.uint32))

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return 0 if self._positions is None else self._positions.nbytes

    def select(self, values: DeviceArray) -> DeviceArray:
        """The entries of an array along its first axis that belong to the signals of the list."""
        return values if self._positions is None else gather_rows(values, self._positions)


class Prover:
    """The points of a key in device memory, and the commands of a proof."""

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
        """`lists` are those of A and C, and of B. `sets` are the points of the sections a, c, b1,
        b2 and h, arranged by these lists. With `glv`, scalars are halved."""
        self._device, self._curve = device, curve
        prime = curve.scalar_field.prime
        self._witness = device.empty((signals, *prime.element_shape), prime.column_dtype)
        self._lock = threading.Lock()
        for_a, for_b = lists
        length = sets["h"].points.shape[0] // (1 if glv is None else 2)
        msm = JointMsm(
            device,
            [
                ScalarList(for_a.count, (sets["a"], sets["c"])),
                ScalarList(for_b.count, (sets["b1"], sets["b2"])),
                ScalarList(length, (sets["h"],)),
            ],
            curve.r.bit_length(),
            glv,
        )
        with CapturedSteps(device, reorders=True) as self._commands:
            factors = for_a.select(self._witness), for_b.select(self._witness)
            found = msm.run([*factors, quotient.compute(self._witness)])
        self._g1, self._g2 = found[curve.g1.key], found[curve.g2.key]

    def compute(self, witness: Words) -> ProofSums:
        """The MSMs for a witness: words (signals, 8) below the modulus, in canonical form."""
        device = self._device
        with self._lock:
            values = witness.view(self._witness.dtype).reshape(self._witness.shape)
            device.assign(self._witness, values)
            self._commands.replay()
            g1, g2 = device.fetch(self._g1), device.fetch(self._g2)
        (a, c, b1, h), (b2,) = (
            self._load(self._curve.g1.key, g1),
            self._load(self._curve.g2.key, g2),
        )
        arithmetic = get_arithmetic(self._curve.g1.key)
        return ProofSums(a, b1, b2, arithmetic.add([c], [h])[0])

    @staticmethod
    def _load(key: CurveKey, points: Words) -> list[Point]:
        return get_arithmetic(key).load(points)
