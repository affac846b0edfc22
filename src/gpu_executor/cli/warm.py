"""`gpu-executor warm`: compile what works need, so that the first call of a program finds it on
disk."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import click

from gpu_executor.cli.output import console, format_milliseconds, print_text
from gpu_executor.cli.progress import ProgressView, open_progress
from gpu_executor.settings import Settings
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.warm_up.works import Workload, find_work, list_works


@click.command()
@click.argument("work", type=click.Choice(tuple(list_works())))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def warm(work: str, names: tuple[str, ...]) -> None:
    """Compile what a work needs on the device, and keep it on disk.

    NAME is one of the package's fields, curves or hash functions: `gpu-executor warm msm
    BLS12_381_G1`.
    """
    subjects = {name: _find_subject(find_work(work), name) for name in names}
    settings = Settings.from_environment()
    with PersistentVulkanBackend(settings=settings) as gpu:
        for name, subject in subjects.items():
            begun, before = perf_counter(), gpu.stats().disk_cache.pipelines_loaded
            with open_progress() as view:
                task = _CompileTask(view, f"{work} {name}: pipelines")
                count = gpu.warm_up(work, subject, progress=task.update)
            loaded = gpu.stats().disk_cache.pipelines_loaded - before
            took = format_milliseconds((perf_counter() - begun) * 1e3)
            print_text(f"{work} {name}: {count} pipelines, {loaded} of them from disk, in {took}")
    kept = "not kept: GPU_CACHE is 0" if settings.cache_dir is None else settings.cache_dir
    console.print(f"cache: {kept}", soft_wrap=True)


def _find_subject(work: Workload, name: str) -> Any:
    if name not in work.named:
        raise click.BadParameter(
            f"{name!r} is not one of {', '.join(work.named)}.", param_hint="NAME"
        )
    return work.named[name]


class _CompileTask:
    """A task of a progress view whose number of steps is not known at first."""

    def __init__(self, view: ProgressView, what: str) -> None:
        self._view, self._what = view, what
        self._task, self._total = view.begin(what), -1

    def update(self, done: int, total: int) -> None:
        if total != self._total:
            self._view.end(self._task)
            self._task, self._total = self._view.begin(self._what, total), total
        self._view.update(self._task, done)
