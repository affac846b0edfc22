"""AMD's compiler without an AMD GPU: RADV, Mesa's driver, on null hardware.

With `RADV_FORCE_FAMILY` set, RADV offers one device of that family that has no memory and runs
nothing, and compiles pipelines as it does for a real one. It reads the variable when it is loaded,
so each family has a process of its own (`python -m gpu_executor.compile_report`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.compile_report.workload import RecordedPipeline, record_workload
from gpu_executor.errors import GpuError, NoDeviceError
from gpu_executor.vulkan.device import EXECUTABLE_PROPERTIES, Device, describe_device
from gpu_executor.vulkan.executable_statistics import read_statistics
from gpu_executor.vulkan.instance import Instance
from gpu_executor.vulkan.pipeline import RADV, destroy_pipeline, make_pipeline, prepare_code

FAMILY_VARIABLE = "RADV_FORCE_FAMILY"
DEFAULT_FAMILIES = ("navi21", "vega10")
"""RDNA 2, whose subgroups of 64 run on units of 32, and GCN 5."""
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""What tells the loader its drivers, in new versions and in old ones."""
DRIVER_FOLDERS = (
    Path("/usr/share/vulkan/icd.d"),
    Path("/usr/local/share/vulkan/icd.d"),
    Path("/etc/vulkan/icd.d"),
)
STATISTICS = {
    "instructions": "Instructions",
    "vgprs": "VGPRs",
    "sgprs": "SGPRs",
    "spilled_vgprs": "Spilled VGPRs",
    "spilled_sgprs": "Spilled SGPRs",
    "scratch_bytes": "Scratch size",
    "code_bytes": "Code size",
    "waves": "Subgroups per SIMD",
    "lds_bytes": "LDS size",
    "latency": "Latency",
    "inverse_throughput": "Inverse Throughput",
}
"""Our names of what RADV reports, and its names."""
COMPILER_ERROR = re.compile(r"ACO ERROR:.*\n(?:\s+In file .*\n)?\s+(.*)")
"""ACO, RADV's compiler, prints this where it leaves out an instruction, and succeeds."""


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """What the compiler says of a pipeline. Scratch is that of a subgroup; latency and inverse
    throughput are cycles of the compiler's model, which takes every loop to run eight times."""

    module: str
    kernel: str
    constants: str
    """The specialization constants, without the digits of a prime."""
    chosen: bool
    """Whether operations use the pipeline on such a device."""
    error: str = ""
    """Why there is no pipeline, or none that computes what the kernel says."""
    instructions: int = 0
    vgprs: int = 0
    sgprs: int = 0
    spilled_vgprs: int = 0
    spilled_sgprs: int = 0
    scratch_bytes: int = 0
    code_bytes: int = 0
    waves: int = 0
    """Subgroups that a SIMD unit has room for."""
    lds_bytes: int = 0
    latency: int = 0
    inverse_throughput: int = 0

    @property
    def spills(self) -> bool:
        """Whether registers are kept in memory."""
        return bool(self.spilled_vgprs or self.spilled_sgprs or self.scratch_bytes)


def find_driver(
    environment: Mapping[str, str] = os.environ, folders: Iterable[Path] = DRIVER_FOLDERS
) -> Path:
    """Return the file that describes RADV to the Vulkan loader, for this processor."""
    names = (f"radeon_icd.{platform.machine()}.json", "radeon_icd.json")
    given = [
        Path(each)
        for variable in DRIVER_VARIABLES
        for each in environment.get(variable, "").split(os.pathsep)
        if Path(each).name.startswith("radeon_icd")
    ]
    found = [*given, *(folder / name for folder in folders for name in names)]
    for each in found:
        if each.is_file():
            return each
    raise NoDeviceError(
        f"compile-report needs RADV, Mesa's driver for AMD GPUs (the GPU itself is not needed): no "
        f"{names[0]} in {', '.join(map(str, folders))}. Install it with 'apt-get install "
        "mesa-vulkan-drivers' (Debian, Ubuntu) or your system's package of Mesa's Vulkan drivers"
    )


def make_environment(family: str, driver: Path) -> dict[str, str]:
    """Return the environment of the process that compiles for a family."""
    ours = {FAMILY_VARIABLE: family, **dict.fromkeys(DRIVER_VARIABLES, str(driver))}
    return {**os.environ, **ours, "MESA_SHADER_CACHE_DISABLE": "true"}


def compile_workload() -> dict[str, Any]:
    """Compile every pipeline on the null hardware that this process's environment selects; return
    the device, its driver and the figures of all pipelines, in values that JSON can represent."""
    instance = Instance()
    try:
        found = [(handle, info) for handle, info in instance.devices() if info.driver == RADV]
        if not found:
            raise NoDeviceError(
                f"{FAMILY_VARIABLE}={os.environ.get(FAMILY_VARIABLE)}: RADV offers no device of "
                "this family; its sources list the names, such as navi21, vega10 and polaris10"
            )
        info = describe_device(found[0][0], statistics=True)
        if EXECUTABLE_PROPERTIES not in info.extensions:
            raise NoDeviceError(
                f"{info.name} lacks {EXECUTABLE_PROPERTIES}; install a newer mesa-vulkan-drivers"
            )
        device = Device(found[0][0], info)
        try:
            requests = record_workload(info).requests.values()
            figures = [compile_request(device, each) for each in requests]
        finally:
            device.close()
    finally:
        instance.close()
    return {
        "device": info.name,
        "driver": f"{info.driver} {info.driver_version}",
        "pipelines": [dataclasses.asdict(each) for each in figures],
    }


def compile_request(device: Device, request: RecordedPipeline) -> PipelineFigures:
    """Return the figures of one pipeline, or the error of the compiler."""
    what = PipelineFigures(
        request.module, request.kernel.name, request.describe_constants(), request.chosen
    )
    with tempfile.TemporaryFile("w+") as printed:
        with _redirect_stderr(printed):
            try:
                code = prepare_code(
                    device.info,
                    request.kernel,
                    request.constants,
                    params_in_buffer=request.params_in_buffer,
                )
                pipeline = make_pipeline(device, code)
            except GpuError as error:
                return dataclasses.replace(what, error=str(error))
            try:
                statistics = read_statistics(device, pipeline)
            finally:
                destroy_pipeline(device, pipeline)
        printed.seek(0)
        said = find_compiler_error(printed.read())
    figures: dict[str, Any] = {"error": said, **name_statistics(statistics)}
    return dataclasses.replace(what, **figures)


def find_compiler_error(printed: str) -> str:
    """Return the first error in what the compiler printed, in words; empty if there is none."""
    found = COMPILER_ERROR.search(printed)
    return "" if found is None else f"the compiler left out an instruction: {found[1].strip()}"


def name_statistics(statistics: Mapping[str, float]) -> dict[str, int]:
    """Return what RADV reports by our names; refuses what lacks one of them."""
    missing = [name for name in STATISTICS.values() if name not in statistics]
    if missing:
        raise GpuError(
            f"this version of RADV reports no {', '.join(missing)}; it reports "
            f"{', '.join(statistics)}"
        )
    return {ours: int(statistics[theirs]) for ours, theirs in STATISTICS.items()}


@contextlib.contextmanager
def _redirect_stderr(file: IO[str]) -> Iterator[None]:
    """Let C code print to a file what it prints to the standard error stream."""
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
