"""The points of a key: checked, and arranged on a device for its prover."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.curves import Curve, PointArray
from gpu_executor.groth16.blinding import EXTRA, extend_points
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import ResidentProver, SignalList, StreamedProver
from gpu_executor.groth16.quotient import Quotient, place_rows
from gpu_executor.groth16.zkey_file import B1, B2, IC, A, C, H, ZkeyFile
from gpu_executor.msm.joint import PointSet, make_point_set
from gpu_executor.ops.points import AFFINE, make_points
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity

Check = Literal["group", "curve", "none"]
"""What is checked of points: that they are on the curve and in the group of prime order, on the
curve, or nothing."""
NUMBERS = {"ic": IC, "a": A, "b1": B1, "b2": B2, "c": C, "h": H}
CHECKED_AT_ONCE = 1 << 20
"""Points whose check the device does at once."""
Words = npt.NDArray[Any]


def find_finite(points: Words) -> npt.NDArray[np.bool_]:
    """Which points of words are not at infinity, which is all zeros."""
    flat = points.reshape(len(points), -1)
    finite: npt.NDArray[np.bool_] = (flat[:, 0] != 0) | (flat[:, -1] != 0)
    candidates = np.flatnonzero(~finite)
    finite[candidates] = flat[candidates].any(axis=1)
    return finite


class KeyLoader:
    """Copies the sections of a key to a device and checks their points."""

    def __init__(self, device: ArrayDevice, zkey: ZkeyFile, check: Check) -> None:
        self._device, self._zkey, self._check = device, zkey, check
        self._places = place_rows(zkey.curve, zkey.log_domain)
        self._glv = None if check == "curve" else zkey.curve.g1.glv

    @property
    def curve(self) -> ProofCurve:
        """The curve of the key."""
        return self._zkey.curve

    def load(self, memory: int | None) -> ResidentProver | StreamedProver:
        """The prover of the key: with all points on the device, if they fit within `memory`
        bytes, or within the free memory."""
        zkey = self._zkey
        zkey.check_coefficients()
        zkey.check_coordinates()
        quotient = Quotient(self._device, self.curve, zkey.coefficients, zkey.log_domain)
        self._load_checked("ic", zkey.ic)
        return self._make_resident(quotient)

    def _make_resident(self, quotient: Quotient) -> ResidentProver:
        zkey = self._zkey
        finite = {name: find_finite(getattr(zkey, name)) for name in ("a", "b1", "b2", "c")}
        first = zkey.n_public + 1
        of_a, of_b = finite["a"], finite["b1"] | finite["b2"]
        of_a[first:] |= finite["c"]
        lists = self._make_list(of_a, "a", "c"), self._make_list(of_b, "b1", "b2")
        sets = {
            "a": self._arrange("a", lists[0]),
            "c": self._arrange("c", lists[0], first),
            "b1": self._arrange("b1", lists[1]),
            "h": self._make_set("h", self._load_checked("h", self.order_h())),
            "b2": self._arrange("b2", lists[1]),
        }
        return ResidentProver(
            self._device, self.curve, quotient, zkey.n_vars, lists, sets, self._glv
        )

    def _make_list(self, finite: npt.NDArray[np.bool_], *sections: str) -> SignalList:
        """The signals with a finite point in some section, and the extra scalars that have one."""
        extra = [find_finite(extend_points(self._zkey, name)) for name in sections]
        return SignalList(self._device, np.concatenate([finite, np.logical_or(*extra)]))

    def _arrange(self, name: str, signals: SignalList, first: int = 0) -> PointSet:
        """The points of a section for the signals and the extra scalars of a list; the first
        signals have none."""
        device, key = self._device, self._get_group(name).key
        points = self._load_checked(name, getattr(self._zkey, name))
        stop = first + len(points)
        padded = make_points(device, key, stop + EXTRA, coordinates=AFFINE)
        if first:
            device.assign(padded[:first], padded.dtype.type(0))
        if len(points):
            device.assign(padded[first:stop], points)
        device.assign(padded[stop:], extend_points(self._zkey, name))
        return self._make_set(name, signals.select(padded))

    def order_h(self) -> Words:
        """The points of the section H in the order of the quotient."""
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

    def _load_checked(self, name: str, words: Words) -> DeviceArray:
        """The points of a section on the device, checked."""
        loaded = self._device.put(np.ascontiguousarray(words))
        if self._check != "none":
            for start in range(0, len(words), CHECKED_AT_ONCE):
                self._check_part(name, loaded[start : start + CHECKED_AT_ONCE], start)
        return loaded

    def _check_part(self, name: str, part: DeviceArray, start: int) -> None:
        group = self._get_group(name)
        points = PointArray(group, part)
        found = group.in_subgroup(points) if self._check == "group" else group.is_on_curve(points)
        bad = np.flatnonzero(~found)
        if not bad.size:
            return
        index = int(bad[0])
        on_curve = bool(group.is_on_curve(points[index]))
        reason = "is on the curve and not in the group" if on_curve else "is not on the curve"
        at = start + index
        if name == "h" and self._places is not None:
            at = int(np.flatnonzero(self._places == at)[0])
        section = NUMBERS[name]
        size = group.get_layout("affine").element_bytes
        offset = self._zkey.file.get(section).offset + at * size
        self._zkey.file.fail(f"point {at:,} {reason}", section, offset)


def find_image_factor(group: Curve, glv: Glv | None) -> int | None:
    """The cube root of unity by which x of a point is multiplied where the scalar is multiplied by
    the eigenvalue; None without halves."""
    if glv is None:
        return None
    own, beta = group.glv, find_cube_root_of_unity(group.key.prime.modulus)
    assert own is not None and beta is not None
    return beta if own.eigenvalue == glv.eigenvalue else beta * beta % group.key.prime.modulus
