"""The points of a key: checked, and arranged on a device for its prover."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.curves import Curve
from gpu_executor.groth16.blinding import EXTRA, extend_points
from gpu_executor.groth16.group_check import find_outside
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import (
    SECTIONS,
    Prover,
    ResidentProver,
    SignalList,
    StreamedProver,
    plan_joint_msm,
)
from gpu_executor.groth16.quotient import Quotient, place_rows
from gpu_executor.groth16.zkey_file import B1, B2, IC, A, C, H, ZkeyFile
from gpu_executor.msm.joint import PointSet, make_point_set
from gpu_executor.ops.indexing import gather_rows
from gpu_executor.ops.point_bytes import GOOD, INFINITE, NOT_BELOW, OFF_CURVE, find_codes
from gpu_executor.ops.points import AFFINE, make_points
from gpu_executor.ops.scans import make_elements
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity
from gpu_executor.steps.dry_device import DryDevice

Check = Literal["group", "curve", "none"]
"""What is checked of points: that they are on the curve and in the group of prime order, on the
curve, or nothing."""
STREAMED_POINTS = 1 << 20
"""Points that are checked at once where a key does not fit the device."""
MEMORY_SHARE = 0.75
"""The share of the free memory that a key takes, unless the caller says otherwise."""
QUOTIENT_ELEMENTS = 18
"""Elements in the arrays of a quotient, for each row of the domain."""
NUMBERS = {"ic": IC, "a": A, "b1": B1, "b2": B2, "c": C, "h": H}
Words = npt.NDArray[Any]
Booleans = npt.NDArray[np.bool_]


class KeyLoader:
    """Copies the sections of a key to a device and checks their points."""

    def __init__(self, device: ArrayDevice, zkey: ZkeyFile, check: Check) -> None:
        self._device, self._zkey, self._check = device, zkey, check
        self._places = place_rows(zkey.curve, zkey.log_domain)
        self._glv = choose_glv(zkey.curve, check)

    @property
    def curve(self) -> ProofCurve:
        """The curve of the key."""
        return self._zkey.curve

    def load(self, memory: int | None) -> Prover:
        """The prover of the key: with all points on the device, if they and the arrays of a proof
        fit within `memory` bytes, or else within a share of the free memory."""
        zkey, device = self._zkey, self._device
        limit = int(device.free_memory * MEMORY_SHARE) if memory is None else memory
        needed, largest = self._measure(zkey.n_vars + EXTRA)
        quotient = Quotient(device, zkey)
        self._load_checked("ic", zkey.ic)
        if needed <= limit and largest <= device.info.limits.max_storage_buffer_range:
            return self._make_resident(quotient)
        for name in SECTIONS:
            points = getattr(zkey, name)
            for start in range(0, len(points), STREAMED_POINTS):
                self._load_checked(name, points[start : start + STREAMED_POINTS], start)
        return StreamedProver(device, zkey, quotient, self._order_h(), self._glv)

    def _measure(self, signals: int) -> tuple[int, int]:
        """The bytes of a key on the device with those of a proof, and of the largest array, if no
        points are at infinity; nothing runs."""
        zkey, curve = self._zkey, self.curve
        meter = DryDevice(self._device.info)
        images = 1 if self._glv is None else 2
        sets = {}
        for name in SECTIONS:
            key = self._get_group(name).key
            count = images * (zkey.domain_size if name == "h" else signals)
            sets[name] = PointSet(key, make_points(meter, key, count, coordinates=AFFINE))
        prime = curve.scalar_field.prime
        lengths = signals, signals, zkey.domain_size
        scalars = [make_elements(meter, prime, each) for each in lengths]
        plan_joint_msm(meter, curve, (signals, signals), sets, self._glv).run(scalars)
        rows = (QUOTIENT_ELEMENTS * zkey.domain_size + zkey.n_vars) * prime.element_bytes
        return meter.nbytes + rows + zkey.coefficients.nbytes, meter.largest

    def _make_resident(self, quotient: Quotient) -> ResidentProver:
        zkey, first = self._zkey, self._zkey.n_public + 1
        points, finite = {}, {}
        for name in ("a", "c", "b1", "b2"):
            points[name], finite[name] = self._load_checked(name, getattr(zkey, name))
        of_a, of_b = finite["a"], finite["b1"] | finite["b2"]
        of_a[first:] |= finite["c"]
        for_a, for_b = self._list_signals(of_a, "a", "c"), self._list_signals(of_b, "b1", "b2")
        sets = {
            "a": self._arrange("a", points.pop("a"), for_a),
            "c": self._arrange("c", points.pop("c"), for_a, first),
            "b1": self._arrange("b1", points.pop("b1"), for_b),
            "h": self._arrange_h(),
            "b2": self._arrange("b2", points.pop("b2"), for_b),
        }
        return ResidentProver(
            self._device, self.curve, quotient, zkey.n_vars, (for_a, for_b), sets, self._glv
        )

    def _list_signals(self, finite: Booleans, *sections: str) -> SignalList:
        """The signals with a finite point in a section, and the extra scalars with one."""
        extra = [extend_points(self._zkey, name).reshape(EXTRA, -1) for name in sections]
        own = np.hstack(extra).any(axis=1)
        return SignalList(self._device, np.concatenate([finite, own]))

    def _arrange(
        self, name: str, points: DeviceArray, signals: SignalList, first: int = 0
    ) -> PointSet:
        """The points of a section for the signals and the extra scalars of a list; the first
        signals have none."""
        device, stop = self._device, first + len(points)
        key = self._get_group(name).key
        padded = make_points(device, key, stop + EXTRA, coordinates=AFFINE)
        if first:
            device.assign(padded[:first], padded.dtype.type(0))
        if len(points):
            device.assign(padded[first:stop], points)
        device.assign(padded[stop:], extend_points(self._zkey, name))
        return self._make_set(name, signals.select(padded))

    def _arrange_h(self) -> PointSet:
        """The points of the section H in the order of the quotient."""
        points = self._load_checked("h", self._zkey.h)[0]
        if self._places is not None:
            order = np.empty(len(self._places), np.uint32)
            order[self._places] = np.arange(len(order))
            points = gather_rows(points, self._device.put(order))
        return self._make_set("h", points)

    def _order_h(self) -> Words:
        """The same points in host memory."""
        if self._places is None:
            return self._zkey.h
        ordered = np.empty_like(self._zkey.h)
        ordered[self._places] = self._zkey.h
        return ordered

    def _make_set(self, name: str, points: DeviceArray) -> PointSet:
        group = self._get_group(name)
        return make_point_set(group.key, points, find_image_factor(group, self._glv))

    def _get_group(self, name: str) -> Curve:
        return self.curve.g2 if name == "b2" else self.curve.g1

    def _load_checked(
        self, name: str, words: Words, start: int = 0
    ) -> tuple[DeviceArray, Booleans]:
        """The points of a section on the device, checked, and which are finite; the first one is
        number `start`."""
        loaded = self._device.put(np.ascontiguousarray(words))
        group = self._get_group(name)
        codes = find_codes(group.key, loaded).numpy()
        finite: Booleans = codes != INFINITE
        wrong = codes == NOT_BELOW if self._check == "none" else finite & (codes != GOOD)
        bad = np.flatnonzero(wrong)
        if bad.size:
            is_off = codes[bad[0]] == OFF_CURVE
            reason = "is not on the curve" if is_off else "has a coordinate that is not below q"
            self._refuse_point(name, start + int(bad[0]), reason)
        outside = find_outside(group, loaded) if self._check == "group" else None
        if outside is not None:
            self._refuse_point(name, start + outside, "is on the curve and not in the group")
        return loaded, finite

    def _refuse_point(self, name: str, index: int, reason: str) -> NoReturn:
        section, file = NUMBERS[name], self._zkey.file
        size = self._get_group(name).get_layout("affine").element_bytes
        file.fail(f"point {index:,} {reason}", section, file.get(section).offset + index * size)


def choose_glv(curve: ProofCurve, check: Check) -> Glv | None:
    """How scalars are halved; None for points that may be outside the group."""
    return None if check == "curve" else curve.g1.glv


def find_image_factor(group: Curve, glv: Glv | None) -> int | None:
    """The cube root of unity by which x of a point is multiplied where the scalar is multiplied by
    the eigenvalue; None without halves."""
    if glv is None:
        return None
    own, beta = group.glv, find_cube_root_of_unity(group.key.prime.modulus)
    assert own is not None and beta is not None
    return beta if own.eigenvalue == glv.eigenvalue else beta * beta % group.key.prime.modulus
