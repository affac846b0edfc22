"""Hunts for wrong results: many calls of many kernels, in every way that a backend has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle
from random import Random
from typing import Any

import gpu_executor as gx
from tests.support.random_kernels.calls import has_reference, make_kernel
from tests.support.random_kernels.corpus import Entry
from tests.support.random_kernels.draw_calls import list_calls
from tests.support.random_kernels.graphs import replay_graph, run_in_graph
from tests.support.random_kernels.runs import (
    KernelRun,
    Method,
    Tally,
    forget_expected,
    run_batch,
    run_batch_to_outputs,
    run_single,
    run_stream,
    submit_calls,
)
from tests.support.random_kernels.wgsl import make_wgsl
from tests.support.random_kernels.wgsl_parameters import draw_text_kernel, run_text_kernel

METHODS: dict[str, tuple[Method, ...]] = {
    "vulkan": (run_batch, run_in_graph, run_batch_to_outputs, run_stream, replay_graph),
    "executor": (submit_calls, run_batch, run_stream),
    "cpu": (run_batch, run_in_graph, run_stream),
    "webgpu": (run_batch, run_stream),
}
"""By backend, the methods that run a few calls by turns, after each ran by itself."""
AT_ONCE = 6


def hunt(
    backend: Any,
    name: str,
    entries: Iterable[Entry],
    *,
    calls_per_kernel: int,
    calls: int,
    deadline: float,
    report: Callable[[str], None],
) -> Tally:
    """Run kernels until there were so many calls or the deadline is over; report each failure."""
    tally, reported = Tally(), 0
    for entry in entries:
        if tally.calls >= calls or time.monotonic() > deadline:
            break
        _hunt_kernel(tally, backend, name, entry, calls_per_kernel)
        forget_expected()
        for failure in tally.failures[reported:]:
            report(failure)
        reported = len(tally.failures)
    return tally


def _hunt_kernel(
    tally: Tally, backend: Any, name: str, entry: Entry, calls_per_kernel: int
) -> None:
    options: dict[str, Any] = {}
    if name == "webgpu":
        random = Random(f"text of {entry.kernel.name}")
        text = draw_text_kernel(random, f"text of {entry.kernel.name}")
        run_text_kernel(tally, backend, text, random, calls_per_kernel // 2)
        if not entry.kernel.wgsl:
            return
        options["wgsl"] = make_wgsl(entry.kernel)
    if name == "cpu" and not has_reference(entry.kernel):
        return
    make = partial(make_kernel, entry.kernel, entry.code, **options)
    run = KernelRun(tally, backend, entry.kernel, make, **_choose_options(name, entry))
    calls = list_calls(entry.kernel, calls_per_kernel // 2)
    for at, method in zip(range(0, len(calls), AT_ONCE), cycle(METHODS[name]), strict=False):
        run.run(run_single, calls[at : at + AT_ONCE])
        run.run(method, calls[at : at + AT_ONCE])
    tally.kernels += run.ran


def _choose_options(name: str, entry: Entry) -> dict[str, Any]:
    """The path of the data, by turns that the kernel's name decides."""
    if name != "vulkan":
        return {}
    return {"device_local": Random(f"path of {entry.kernel.name}").choice((True, False, None))}


def open_backend(name: str, device: str | None) -> Any:
    """Open what `--backend` names."""
    options: dict[str, Any] = {} if device is None else {"device": device}
    if name == "executor":
        return gx.GpuExecutor("vulkan", **options)
    if name == "vulkan":
        return gx.PersistentVulkanBackend(**options)
    return gx.WgpuExecutor() if name == "webgpu" else gx.CpuBackend()
