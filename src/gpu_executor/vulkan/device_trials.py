"""What a device is asked once by running something, because Vulkan does not report it.

- Whether large primes are multiplied with f64 limbs. Some GPUs have as many units for f64 as for
  integers, most have few. Nor does Vulkan promise that fma() rounds once, which those products rely
  on. The first product of a large prime took an NVIDIA H200 0.26 s with everything that is made and
  tried for it, the next one 0.5 ms.
- How many bytes its kernels move in the time of a product.

A file of the cache folder keeps the second answer for later processes (`TrialFile`): without it the
first MSM of 2^20 points took every process 0.4 s longer. Results depend on the first answer, so no
file is trusted with it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.common.files import MAX_JSON_BYTES, parse_json, read_own_file, write_atomically
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.kernels.passes import scan_kernel
from gpu_executor.primes import BLS12_381_FR, words
from gpu_executor.vulkan.command_stream import CommandStream
from gpu_executor.vulkan.disk_cache import fingerprint

F64_LIMB_FEATURES = frozenset({"shaderInt64", "shaderFloat64", "shaderRoundingModeRTZFloat64"})
TRIAL_POINTS, TRIAL_COEFFICIENTS = 1 << 17, 256
"""Products are tried by a polynomial: 34 million of them, in one chain per point."""
TRIAL_DISTINCT_POINTS = 1 << 11
TRIAL_REPEATS = 5
WARM_UP_SECONDS = 0.3
"""What a GPU that idled needs to reach its clock, and more: the time is bounded by the wait that a
user accepts once, and a GPU that reaches its clock sooner loses nothing. An NVIDIA H200 multiplied
32 G elements a second in the trial, and 14 G before that, while its copies were as fast: so copies
are compared with products after it only."""
COPIED_BYTES, COPIES = 1 << 28, 4
"""Copies are tried with several of them in a row, so that their submission takes little of it."""
WORD = np.dtype(np.uint32)
VERSION = 1
"""The version of the file, and of what is tried."""
LARGEST = 1e18
"""No answer is larger; an integer in a damaged file may exceed every float."""
log = logging.getLogger("gpu_executor.vulkan")


class TrialFile:
    """Answers of a device and its driver that results do not depend on, in a file or nowhere. Safe
    from several threads and processes: what two of them find, either of them may write."""

    def __init__(self, folder: Path | None, info: DeviceInfo) -> None:
        """`folder` is the cache folder; with None nothing is read or written."""
        self.path: Path | None = None
        if folder is not None:
            self.path = folder / f"trials-v{VERSION}-{fingerprint(info)}.json"

    def find(self, name: str, ask: Callable[[], float | None]) -> float | None:
        """The stored answer, or else that of `ask`, which is stored. None is no answer."""
        stored = self._read().get(name)
        if stored is not None:
            return stored
        answer = ask()
        if self.path is not None and answer is not None:
            text = json.dumps({**self._read(), name: answer})
            try:
                write_atomically(self.path, text.encode())
            except OSError as error:
                log.warning("the trials of the device were not stored: %s", error)
        return answer

    def _read(self) -> dict[str, float]:
        """All stored answers that can be one."""
        if self.path is None:
            return {}
        try:
            content = parse_json(read_own_file(self.path, MAX_JSON_BYTES).decode())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s is not read and will be replaced: %s", self.path, error)
            return {}
        if not isinstance(content, dict):
            return {}
        return {
            name: float(value)
            for name, value in content.items()
            if type(value) in (int, float) and 0 <= value <= LARGEST
        }


class TriedDevice(ArrayDevice, Protocol):
    """The device that runs the trials, `DeviceMemory`."""

    stream: CommandStream

    def pause_capture(self) -> AbstractContextManager[None]:
        """Record nothing in the `with` block."""


def try_f64_limbs(device: TriedDevice) -> bool:
    """Whether a polynomial has the same values with f64 limbs as with integers, and sooner."""
    if not device.info.features >= F64_LIMB_FEATURES:
        return False
    with device.pause_capture():
        works, results = _make_polynomials(device, [False, True])
        integers_time, f64_time = _time_fastest(device, [[work] for work in works])
        with_integers, with_f64_limbs = (result.numpy() for result in results)
    return np.array_equal(with_integers, with_f64_limbs) and f64_time < integers_time


def measure_bytes_per_product(device: TriedDevice) -> float | None:
    """The bytes that a copy reads and writes in the time of a 255-bit product on integer limbs;
    None if there is no memory to try it."""
    with device.pause_capture():
        try:
            source, target = (device.empty((COPIED_BYTES // 4,), WORD) for _ in range(2))
        except OutOfMemoryError:
            return None
        works, _ = _make_polynomials(device, [False])
        copies: list[Step] = [ArrayCopy(source, target)] * COPIES
        begun = perf_counter()
        while perf_counter() - begun < WARM_UP_SECONDS:
            _time(device, works)
        products_time, copies_time = _time_fastest(device, [works, copies])
    product_time = products_time / (TRIAL_POINTS * TRIAL_COEFFICIENTS)
    return 2 * COPIES * COPIED_BYTES * product_time / copies_time


def _make_polynomials(
    device: TriedDevice, variants: Sequence[bool]
) -> tuple[list[Step], list[DeviceArray]]:
    """The evaluation of one polynomial at the same points, with f64 limbs or without, and what it
    writes."""
    prime = BLS12_381_FR
    draw = np.random.default_rng(1)
    drawn = [int.from_bytes(draw.bytes(31), "little") for _ in range(TRIAL_DISTINCT_POINTS)]
    drawn[:3] = 0, 1, prime.modulus - 1
    distinct = words.from_ints(prime, drawn)
    coefficients = device.put(distinct[-TRIAL_COEFFICIENTS:])
    points = device.put(np.tile(distinct, (TRIAL_POINTS // TRIAL_DISTINCT_POINTS, 1)))
    works: list[Step] = []
    results = []
    for f64_limbs in variants:
        kernel = scan_kernel(prime, "evaluate", f64_limbs=f64_limbs)
        result = device.empty(points.shape, points.dtype)
        arrays, push = (coefficients, points, result), (TRIAL_COEFFICIENTS,)
        works.append(Dispatch(kernel, arrays, TRIAL_POINTS, push, grid_stride=True))
        results.append(result)
    return works, results


def _time_fastest(device: TriedDevice, works: Sequence[Sequence[Step]]) -> list[float]:
    """The seconds of each work by itself, the fastest of several in turns."""
    best = [float("inf")] * len(works)
    for _ in range(TRIAL_REPEATS):
        best = [min(one, _time(device, work)) for one, work in zip(best, works, strict=True)]
    return best


def _time(device: TriedDevice, work: Sequence[Step]) -> float:
    """The seconds of one submission, from an idle device to an idle device."""
    device.stream.wait()
    begun = perf_counter()
    device.submit(work)
    device.stream.wait()
    return perf_counter() - begun
