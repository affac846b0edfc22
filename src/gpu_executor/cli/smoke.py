"""`gpu-executor smoke`: field additions on every backend and data path, against exact integers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial

import click
import numpy as np
from rich.markup import escape

from gpu_executor.bench.inputs import tile_elements
from gpu_executor.calls.call import Array
from gpu_executor.cli.options import CountInMemory
from gpu_executor.cli.output import console
from gpu_executor.cpu import field_oracle
from gpu_executor.cpu.backend import CpuBackend
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.settings import Settings
from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

Adder = Callable[[Array, Array], Array]
PATHS = {"host-visible": False, "device-local": True}
ELEMENT_BYTES = 600
"""Memory of an element, roughly: words of inputs and results, and Python's integers."""
JOB_SHARES = (6, 1, 4, 2, 5, 3)
"""Sizes of the jobs of a batch, in sixths of `--size`."""


@click.command()
@click.option(
    "--size",
    type=CountInMemory(ELEMENT_BYTES),
    default=1_000,
    show_default=True,
    help="Elements of a call.",
)
def smoke(size: int) -> None:
    """Check field additions on every backend and data path."""
    if not print_checks(size):
        sys.exit(1)


def print_checks(size: int, indent: str = "") -> bool:
    """Check every backend and data path, and print the outcomes; returns whether all are right."""
    all_right = True
    for description, right in check_every_path(size):
        mark = "[green]right[/]" if right else "[red]wrong[/]"
        console.print(f"{indent}{mark}  {escape(description)}", soft_wrap=True)
        all_right = all_right and right
    return all_right


def check_every_path(size: int) -> Iterator[tuple[str, bool]]:
    """Yield a description of each backend and data path, and whether its sums are right."""
    prime = BLS12_381_FQ
    a, b = tile_elements(prime, size, 1), tile_elements(prime, size, 2)
    sums = field_oracle.add(prime, words.to_ints(prime, a), words.to_ints(prime, b))
    expected = words.from_ints(prime, sums)
    for description, add in _open_adders(size):
        yield f"{size:,} additions, {description}", bool(np.array_equal(add(a, b), expected))
    yield from _check_batches(a, b, expected)


def _open_adders(size: int) -> Iterator[tuple[str, Adder]]:
    """Yield a function for field addition by each backend and data path; a backend is closed before
    the next one opens.
    """
    yield "cpu", CpuBackend().run_field_add
    settings = Settings.from_environment()
    in_chunks = dataclasses.replace(settings, stream_chunk_elems=max(size // 3, 1))
    for path, device_local in PATHS.items():
        with VulkanSpirvBackend(settings=settings) as one_shot:
            yield f"one-shot, {path}", partial(one_shot.run_field_add, device_local=device_local)
        for name, chosen in (("persistent", settings), ("persistent in chunks", in_chunks)):
            with PersistentVulkanBackend(settings=chosen) as gpu:
                add = partial(gpu.run_field_add, device_local=device_local)
                yield f"{name}, {path}, {gpu.device.name}", add


def _check_batches(a: Array, b: Array, expected: Array) -> Iterator[tuple[str, bool]]:
    """Check batches of jobs of different sizes, taken from the end of the arrays so that no two
    jobs start with the same elements.
    """
    starts = [len(a) - max(len(a) * share // 6, 1) for share in JOB_SHARES]
    jobs = [(a[start:], b[start:]) for start in starts]
    with PersistentVulkanBackend() as gpu:
        modes = {
            "sequential": gpu.run_field_add_batch,
            "pipelined": gpu.run_field_add_batch_pipelined,
        }
        for path, device_local in PATHS.items():
            for name, run in modes.items():
                results = run(jobs, device_local=device_local)
                right = all(
                    np.array_equal(result, expected[start:])
                    for result, start in zip(results, starts, strict=True)
                )
                yield f"{len(jobs)} jobs, {name}, {path}, {gpu.device.name}", right
