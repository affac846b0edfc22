"""`gpu-executor doctor`: what works on this machine, what is missing, and how to install it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import click
from rich.markup import escape

from gpu_executor.cli.devices import list_adapters
from gpu_executor.cli.output import console
from gpu_executor.cli.smoke import check_every_path
from gpu_executor.common.files import check_folder_writable
from gpu_executor.common.system_packages import Part, describe_installation
from gpu_executor.errors import GpuError
from gpu_executor.executor.candidates import DEFERS_WEBGPU
from gpu_executor.settings import Settings
from gpu_executor.vulkan.instance import (
    VALIDATION_LAYER,
    find_devices,
    list_layers,
    read_loader_version,
)
from gpu_executor.vulkan.session import Session
from gpu_executor.webgpu.device import find_adapters

USES_WEBGPU = (
    "GpuExecutor() uses it if Vulkan finds no device"
    if DEFERS_WEBGPU
    else "GpuExecutor() uses it if Vulkan has no device as good"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    subject: str
    works: bool
    details: str
    needed: bool = True
    """Whether kernels need it to run; the rest is for development."""


@click.command()
def doctor() -> None:
    """Check what works here, what is missing, how to install it."""
    findings = []
    for finding in examine():
        findings.append(finding)
        mark = "[green]works  [/]" if finding.works else "[red]missing[/]"
        if not finding.works and not finding.needed:
            mark = "[yellow]absent [/]"
        text = escape(f"{finding.subject}: {finding.details}")
        console.print(f"{mark} {text}", soft_wrap=True)
    if not all(finding.works for finding in findings if finding.needed):
        sys.exit(1)


def examine() -> Iterator[Finding]:
    """Run all checks, from the Vulkan loader up."""
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    yield _check("Vulkan loader", _read_loader_version)
    yield _check("devices", _list_devices)
    yield _check("open a device", _open_device)
    yield _check("results", _compute)
    yield _find_cache()
    yield _find_webgpu()
    yield _find_validation_layer()
    tools: tuple[tuple[Part, str], ...] = (
        ("glslc", "Kernel.from_glsl and to build kernels"),
        ("spirv-val", "checks of your own SPIR-V"),
    )
    for command, use in tools:
        found = shutil.which(command)
        details = found or f"needed only for {use}: {describe_installation(command)}"
        yield Finding(command, found is not None, details, needed=False)


def _check(subject: str, check: Callable[[], str]) -> Finding:
    """Return the finding of a check, which returns details or raises if something is missing."""
    try:
        return Finding(subject, True, check())
    except GpuError as error:
        return Finding(subject, False, str(error))


def _read_loader_version() -> str:
    return f"Vulkan {'.'.join(map(str, read_loader_version()))}"


def _list_devices() -> str:
    return "; ".join(f"{device.name} ({device.kind})" for device in find_devices())


def _open_device() -> str:
    with closing(Session(Settings.from_environment())) as session:
        info = session.info
    described = f"{info.name}, {info.driver} {info.driver_version}"
    if "shaderInt64" not in info.features:
        return f"{described}; kernels with 64-bit integers run on pairs of words"
    return described


def _compute() -> str:
    checks = dict(check_every_path(size=1_000))
    wrong = [description for description, right in checks.items() if not right]
    if wrong:
        raise GpuError(f"wrong results: {'; '.join(wrong)}")
    return f"field additions on {len(checks)} paths equal exact integers"


def _find_cache() -> Finding:
    subject = "pipeline cache"
    try:
        folder = Settings.from_environment().cache_dir
        if folder is None:
            return Finding(subject, True, "off (GPU_CACHE is 0)")
        check_folder_writable(folder)
    except GpuError as error:
        return Finding(subject, False, str(error))
    except OSError as error:
        details = (
            f"{folder} cannot be written: {error.strerror or error}; every process compiles and "
            "calibrates anew. Set GPU_CACHE_DIR to another folder, or GPU_CACHE=0"
        )
        return Finding(subject, False, details, needed=False)
    return Finding(subject, True, str(folder))


def _find_webgpu() -> Finding:
    try:
        adapters = find_adapters()
    except GpuError as error:
        return Finding("WebGPU", False, f"needed only without Vulkan: {error}", needed=False)
    details = f"{list_adapters(adapters)}; {USES_WEBGPU}"
    if not adapters:
        details = "wgpu is installed and finds no adapter; needed only without Vulkan"
    return Finding("WebGPU", bool(adapters), details, needed=False)


def _find_validation_layer() -> Finding:
    try:
        found = VALIDATION_LAYER in list_layers()
    except GpuError:
        found = False
    details = VALIDATION_LAYER if found else describe_installation("validation layer")
    return Finding("validation layer", found, details, needed=False)
