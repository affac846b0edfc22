"""Calibrations for tests of plans: a large GPU, a software driver, and random ones."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import strategies as st

from gpu_executor.plan.calibration import Calibration

H200 = Calibration(
    copy_in=45.7e9,
    copy_out=43.6e9,
    copy_both=52.2e9,
    direct_fill=False,
    host_copy=((1, 9.8e9), (2, 21.7e9), (4, 41.7e9), (8, 68.8e9)),
    fill_copy=9.8e9,
    shared_copy=34.0e9,
    sharing=40e-6,
    chunks_copy=68.8e9,
    handing_over=33.6e-6,
    call_mapped=20.7e-6,
    call_staged=35e-6,
    chunk_mapped=15.9e-6,
    chunk_staged=27.4e-6,
    chunk_split=23.4e-6,
    chunk_several=26.2e-6,
    kernel=3.0e12,
    kernel_mapped=21.9e9,
    seconds=0.6,
    when="2026-11-15",
)
H200_DIRECT = dataclasses.replace(
    H200,
    direct_fill=True,
    host_copy=((1, 11.0e9), (2, 21.6e9), (4, 37.0e9), (8, 57.0e9)),
    fill_copy=14.5e9,
    shared_copy=26.9e9,
    sharing=45e-6,
    chunks_copy=29.2e9,
    handing_over=20e-6,
    call_mapped=17.7e-6,
    call_staged=30.7e-6,
    chunk_mapped=11.5e-6,
    chunk_staged=24.1e-6,
    chunk_split=17e-6,
    chunk_several=15e-6,
    kernel_mapped=23.9e9,
)
"""An NVIDIA H200 whose memory the host fills; one thread has half of the rate of all."""
LAVAPIPE = Calibration(
    copy_in=17.5e9,
    copy_out=17.4e9,
    copy_both=17.9e9,
    direct_fill=False,
    host_copy=((1, 15.6e9), (2, 30.0e9)),
    fill_copy=15.6e9,
    shared_copy=20.0e9,
    sharing=25e-6,
    chunks_copy=30.0e9,
    handing_over=118e-6,
    call_mapped=68e-6,
    call_staged=72e-6,
    chunk_mapped=49e-6,
    chunk_staged=59e-6,
    chunk_split=None,
    chunk_several=None,
    kernel=0.98e9,
    kernel_mapped=0.97e9,
    seconds=0.5,
    when="2026-11-15",
)
RATES = (
    "copy_in",
    "copy_out",
    "copy_both",
    "fill_copy",
    "shared_copy",
    "chunks_copy",
    "kernel",
    "kernel_mapped",
)
TIMES = (
    "sharing",
    "handing_over",
    "call_mapped",
    "call_staged",
    "chunk_mapped",
    "chunk_staged",
)
MAYBE_TIMES = ("chunk_split", "chunk_several")

rates = st.floats(1e3, 1e15)
times = st.floats(1e-9, 10.0)
thread_rates = st.lists(rates, min_size=1, max_size=5).map(
    lambda found: tuple((1 << at, rate) for at, rate in enumerate(found))
)


@st.composite
def random_calibrations(draw: st.DrawFn) -> Calibration:
    """A calibration with random values."""
    changes: dict[str, Any] = {name: draw(rates) for name in RATES}
    changes |= {name: draw(times) for name in TIMES}
    changes |= {name: draw(st.none() | times) for name in MAYBE_TIMES}
    direct, pairs = draw(st.booleans()), draw(thread_rates)
    return dataclasses.replace(H200, host_copy=pairs, direct_fill=direct, **changes)


EAGER = dataclasses.replace(
    LAVAPIPE,
    host_copy=((1, 2e9), (2, 4e9)),
    fill_copy=2e9,
    shared_copy=2e9,
    chunks_copy=4e9,
    handing_over=1e-6,
    chunk_mapped=1e-6,
    chunk_staged=1e-6,
    kernel=3e9,
    kernel_mapped=3e9,
)
"""With this calibration, large calls are chunked into chunks that overlap."""


NAMES = [*RATES, *TIMES, *MAYBE_TIMES, "seconds"]


def is_sound(calibration: Calibration) -> bool:
    """Whether plans can be made from it."""
    values = [getattr(calibration, name) for name in NAMES]
    threads = [number for number, _ in calibration.host_copy]
    values += [rate for _, rate in calibration.host_copy]
    numbers = [value for value in values if value is not None]
    return (
        all(type(number) is float and math.isfinite(number) and number > 0 for number in numbers)
        and all(type(number) is int and number > 0 for number in threads)
        and 1 <= calibration.choose_threads() <= max(threads)
        and isinstance(calibration.when, str)
    )
