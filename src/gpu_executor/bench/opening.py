"""The way to the first result of a process: imports, opening a device, the first call. Beside it,
creating an instance and a device alone. Each is measured in processes of its own, in turns.

The processes have the package's pipeline cache on disk and compiled bytecode, as every process of
an installed package but the first one has them. The first MSM, whose kernels a driver compiles for
seconds, is measured without that cache too.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_executor.bench.child_process import run_python
from gpu_executor.bench.first_call import DRIVER_CACHE_OFF
from gpu_executor.bench.measurement import Target
from gpu_executor.bench.sampled import Sampled
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import GpuError

ROUNDS = 11
MSM_ROUNDS = 2
"""A process without the cache takes seconds."""
CURVES = ("BLS12_381_G1", "BN254_G1")
LOG_POINTS = (12,)
MAX_LOG_POINTS = 22
MOST_SECONDS_OF_MSM = {"no pipelines on disk": 2.0, "pipelines on disk": 0.3}
"""The most time that the first MSM may take."""
MOST_SECONDS = 0.15
"""The most time that imports, opening and the first call may take beyond an instance and a device
alone."""

CREATE_ALONE = """
import json, sys, time
from gpu_executor.vulkan.binding import Arena, allocate_out, enumerate_with, vk
arena = Arena()
vk.vkCreateInstance, vk.vkCreateDevice, vk.vkEnumeratePhysicalDevices  # opens the loader
begun = time.perf_counter()
application = arena.new("VkApplicationInfo", apiVersion=1 << 22 | 3 << 12)
instance = allocate_out("VkInstance")
create = arena.new("VkInstanceCreateInfo", pApplicationInfo=application)
vk.vkCreateInstance(create, vk.ffi.NULL, instance)
instance_done = time.perf_counter()
for physical in enumerate_with(vk.vkEnumeratePhysicalDevices, "VkPhysicalDevice", instance[0]):
    properties = allocate_out("VkPhysicalDeviceProperties")
    vk.vkGetPhysicalDeviceProperties(physical, properties)
    if vk.ffi.string(properties.deviceName).decode() == sys.argv[1]:
        break
devices_done = time.perf_counter()
queue = arena.new(
    "VkDeviceQueueCreateInfo", queueCount=1, pQueuePriorities=arena.array("float", [1.0])
)
create = arena.new("VkDeviceCreateInfo", queueCreateInfoCount=1, pQueueCreateInfos=queue)
vk.vkCreateDevice(physical, create, vk.ffi.NULL, allocate_out("VkDevice"))
done = time.perf_counter()
print(json.dumps({
    "instance": instance_done - begun,
    "devices": devices_done - instance_done,
    "device": done - devices_done,
    "together": done - begun,
}))
"""

OPEN_AND_CALL = """
import json, sys, time
begun = time.perf_counter()
import numpy as np
numpy_done = time.perf_counter()
import gpu_executor as gx
from gpu_executor.vulkan.binding import vk
inside = {"vkCreateInstance": 0.0, "vkEnumeratePhysicalDevices": 0.0, "vkCreateDevice": 0.0}
def watch(name):
    call = getattr(vk, name)
    def timed(*arguments):
        begun = time.perf_counter()
        result = call(*arguments)
        inside[name] += time.perf_counter() - begun
        return result
    setattr(vk, name, timed)
for name in inside:
    watch(name)
gx.GpuExecutor
import_done = time.perf_counter()
gpu = gx.GpuExecutor(sys.argv[1])
open_done = time.perf_counter()
a = np.arange(1000, dtype=np.uint32)
result = gpu.run(gx.kernels.load("vector_add_u32"), a, a)
done = time.perf_counter()
assert np.array_equal(result, 2 * a)
print(json.dumps({
    "numpy": numpy_done - begun,
    "import": import_done - numpy_done,
    "open": open_done - import_done,
    "call": done - open_done,
    "instance": inside["vkCreateInstance"],
    "devices": inside["vkEnumeratePhysicalDevices"],
    "device": inside["vkCreateDevice"],
    "together": done - numpy_done,
}))
gpu.shutdown()
"""


SUM_POINTS = """
import json, sys, time
begun = time.perf_counter()
import numpy as np
numpy_done = time.perf_counter()
import gpu_executor as gx
curve = getattr(gx.curves, sys.argv[1])
import_done = time.perf_counter()
gpu = gx.GpuExecutor("vulkan")
open_done = time.perf_counter()
count = 1 << int(sys.argv[2])
# Pairs that are all different, of few points and scalars, which the host makes in no time.
factors, drawn = np.arange(count) % 4096, curve.scalar_field.random(4097, 1)
points = gpu.to_device((curve.generator * list(range(4096)))[factors])
scalars = drawn[np.arange(count) % 4097]
ready = time.perf_counter()
result = curve.msm(points, scalars).to_host()
done = time.perf_counter()
logarithm = sum(int(each) * int(scalar) for each, scalar in zip(factors, scalars.ints()))
assert result.tolist() == (curve.generator * (logarithm % curve.order)).tolist()
print(json.dumps({
    "numpy": numpy_done - begun,
    "import": import_done - numpy_done,
    "open": open_done - import_done,
    "call": done - ready,
    "together": open_done - numpy_done + done - ready,
}))
gpu.shutdown()
"""


@dataclass(frozen=True, slots=True)
class OpeningTimes:
    """Medians in milliseconds of processes of one kind. A stage that a process does not have
    takes 0."""

    what: str
    numpy_ms: float
    """`import numpy`, which is not in `together_ms`."""
    import_ms: float
    open_ms: float
    call_ms: float
    instance_ms: float
    """In vkCreateInstance, vkEnumeratePhysicalDevices and vkCreateDevice: parts of `open_ms`."""
    devices_ms: float
    device_ms: float
    together_ms: float
    printed: str
    """What the processes wrote to stderr."""


def measure_opening(device: DeviceInfo, rounds: int = ROUNDS) -> list[OpeningTimes]:
    """Measure processes that create an instance and this device alone, that open `GpuExecutor()`,
    and that open `GpuExecutor("vulkan")`."""
    programs = {
        "instance and device alone": (CREATE_ALONE, device.name),
        "GpuExecutor()": (OPEN_AND_CALL, "auto"),
        'GpuExecutor("vulkan")': (OPEN_AND_CALL, "vulkan"),
    }
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    printed = dict.fromkeys(programs, "")
    with tempfile.TemporaryDirectory() as folder:
        environment = _make_environment(Path(folder))
        for turn in range(rounds + 1):
            for name, (program, argument) in programs.items():
                seconds, text = _run_process(program, (argument,), environment)
                printed[name] = printed[name] or text
                if turn:  # the first turn fills the caches
                    taken[name].append(seconds)
    return [_summarize(name, taken[name], printed[name]) for name in programs]


def measure_first_msms(
    curves: Sequence[str] = CURVES,
    log_points: Sequence[int] = LOG_POINTS,
    rounds: int = MSM_ROUNDS,
) -> list[OpeningTimes]:
    """Measure processes whose first call is an MSM of 2^log_points points: the first of all, and
    one that finds its pipelines on disk. The driver's own cache is off."""
    rows = []
    for curve, size in itertools.product(curves, log_points):
        taken: dict[str, list[dict[str, float]]] = {state: [] for state in MOST_SECONDS_OF_MSM}
        printed = dict.fromkeys(MOST_SECONDS_OF_MSM, "")
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                environment = _make_environment(Path(folder)) | DRIVER_CACHE_OFF
                for state in MOST_SECONDS_OF_MSM:
                    arguments = curve, str(size)
                    seconds, text = _run_process(SUM_POINTS, arguments, environment)
                    printed[state] = printed[state] or text
                    taken[state].append(seconds)
        rows += [
            _summarize(f"MSM, {curve}, 2^{size}, {state}", taken[state], printed[state])
            for state in MOST_SECONDS_OF_MSM
        ]
    return rows


def check_msm_targets(rows: Iterable[OpeningTimes]) -> list[Target]:
    """Return the targets of the first MSMs."""
    return [
        Target(row.what, row.call_ms / 1e3, most, "s", at_most=True)
        for row in rows
        for state, most in MOST_SECONDS_OF_MSM.items()
        if row.what.endswith(f", {state}")
    ]


def check_targets(rows: list[OpeningTimes]) -> list[Target]:
    """Return the targets: what opening takes beyond the instance and the device, both without and
    with NumPy's import."""
    alone, *opened = rows
    targets = []
    for row in opened:
        beyond = (row.together_ms - alone.together_ms) / 1e3
        with_numpy = beyond + row.numpy_ms / 1e3
        targets += [
            Target(f"{row.what}, beyond them", beyond, MOST_SECONDS, "s", at_most=True),
            Target(f"{row.what}, NumPy too", with_numpy, MOST_SECONDS, "s", at_most=True),
        ]
    return targets


def _make_environment(folder: Path) -> dict[str, str]:
    """The environment of the processes: empty caches in `folder`, and this package."""
    source = str(Path(__file__).parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "GPU_CACHE_DIR": str(folder / "cache"),
        "GPU_CACHE": "1",
        "GPU_QUICK_PIPELINES": "1",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _run_process(
    program: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, float], str]:
    """Run a program in a process of its own; return the seconds that it prints, and its stderr."""
    child = run_python(["-c", program, *arguments], environment=environment)
    if child.returncode:
        raise GpuError(f"a measuring process failed:\n{child.stderr}")
    seconds: dict[str, float] = json.loads(child.stdout)
    return seconds, child.stderr


def _summarize(what: str, taken: list[dict[str, float]], printed: str) -> OpeningTimes:
    def median(stage: str) -> float:
        return Sampled.median(each.get(stage, 0.0) * 1e3 for each in taken)

    return OpeningTimes(
        what=what,
        numpy_ms=median("numpy"),
        import_ms=median("import"),
        open_ms=median("open"),
        call_ms=median("call"),
        instance_ms=median("instance"),
        devices_ms=median("devices"),
        device_ms=median("device"),
        together_ms=median("together"),
        printed=printed,
    )
