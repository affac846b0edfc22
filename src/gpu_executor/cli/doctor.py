"""`gpu-executor doctor`: what works here, what is missing, how to get it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from gpu_executor.cli.screen import console
from gpu_executor.cli.smoke import check_every_path
from gpu_executor.errors import GpuError
from gpu_executor.settings import Settings
from gpu_executor.vulkan.binding import out, vk
from gpu_executor.vulkan.instance import VALIDATION_LAYER, find_devices, instance_layers
from gpu_executor.vulkan.physical_device import api_version
from gpu_executor.vulkan.session import Session


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    subject: str
    works: bool
    words: str
    needed: bool = True
    """Whether running kernels needs it; the rest is for developing."""


@click.command()
def doctor() -> None:
    """Say what works on this machine, what is missing and how to get it."""
    findings = []
    for finding in examine():
        findings.append(finding)
        mark = "[green]works  [/]" if finding.works else "[red]missing[/]"
        if not finding.works and not finding.needed:
            mark = "[yellow]absent [/]"
        console.print(f"{mark} {finding.subject}: {finding.words}", soft_wrap=True)
    if not all(finding.works for finding in findings if finding.needed):
        sys.exit(1)


def examine() -> Iterator[Finding]:
    """Look at one thing after the other, from the loader up."""
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    yield _looked_at("Vulkan loader", _loader)
    yield _looked_at("devices", _devices)
    yield _looked_at("opening a device", _opening)
    yield _looked_at("computing", _computing)
    yield _looked_at("pipeline cache", _cache)
    yield _validation()
    for command, package in (("glslc", "glslc"), ("spirv-val", "spirv-tools")):
        found = shutil.which(command)
        words = found or f"only for building kernels: apt-get install {package}"
        yield Finding(command, found is not None, words, needed=False)


def _looked_at(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, look())
    except GpuError as error:
        return Finding(subject, False, str(error))


def _loader() -> str:
    version = out("uint32_t")
    vk.vkEnumerateInstanceVersion(version)
    return f"Vulkan {'.'.join(map(str, api_version(version[0])))}"


def _devices() -> str:
    return "; ".join(f"{device.name} ({device.kind})" for device in find_devices())


def _opening() -> str:
    session = Session(Settings.from_environment())
    try:
        info = session.info
        lacking = [name for name in ("shaderInt64",) if name not in info.features]
        if lacking:
            return f"{info.name}, but without {', '.join(lacking)}: no field products there"
        return f"{info.name}, {info.driver} {info.driver_version}"
    finally:
        session.close()


def _computing() -> str:
    checks = dict(check_every_path(size=1_000))
    wrong = [description for description, agrees in checks.items() if not agrees]
    if wrong:
        raise GpuError(f"wrong results: {'; '.join(wrong)}")
    return f"{len(checks)} ways to add give what exact integers give"


def _cache() -> str:
    folder = Settings.from_environment().cache_dir
    return "switched off" if folder is None else str(folder)


def _validation() -> Finding:
    try:
        there = VALIDATION_LAYER in instance_layers()
    except GpuError:
        there = False
    words = VALIDATION_LAYER if there else "apt-get install vulkan-validationlayers"
    return Finding("validation layer", there, words, needed=False)
