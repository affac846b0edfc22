"""Fixtures of all tests: the validation layer, whose messages fail tests, and open backends.

No test is skipped: where the loader, a device or the layer is missing, opening a backend raises an
error that says so, and the test fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings

import gpu_executor as gx
from gpu_executor.executor import device_pool
from gpu_executor.primes import Prime
from gpu_executor.vulkan import instance as vulkan_instance
from gpu_executor.vulkan import memory
from gpu_executor.vulkan.session import Session
from tests.support.interrupts import HANDLED_SIGINTS, raise_keyboard_interrupt

# A software driver shares two cores with the tests, so the time of an example means nothing.
hypothesis_settings.register_profile("gpu", deadline=None)
hypothesis_settings.load_profile("gpu")

# Lavapipe compiles each pipeline for tests that run it once, on few elements: without LLVM's
# optimizations files of tests take 5 to 25% less with an empty shader cache. Set before any driver
# is loaded, and inherited by the processes of tests.
os.environ.setdefault("GALLIVM_PERF", "nopt")

# The layer can also compare one submission with the next. Version 1.3.239 ignores that the host
# waited for a timeline semaphore in between, and reports hazards that do not exist.
# test_submission_hazards.py enables the comparison where the host does not wait.
LAYER_SETTINGS = (
    "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n"
)
UNSET = (
    "GPU_DEVICE_LOCAL",
    "GPU_STREAM_CHUNK_ELEMS",
    "GPU_MEMORY_LIMIT",
    "GPU_IDLE_MEMORY",
    "GPU_CACHE",
)

CHUNK = 100
OpenGpu = Callable[..., gx.PersistentVulkanBackend]
OpenWebGpu = Callable[..., gx.WgpuExecutor]
RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

on_both_paths = pytest.mark.parametrize(
    "device_local", [True, False], ids=["device-local", "host-visible"]
)


MAINNET = "tests/kzg/test_mainnet.py"
SHARED_PIPELINES = {
    "BLS12-381": (
        "tests/kzg",
        "tests/curves/test_point_encoding.py",
        "tests/curves/test_device_point_encoding.py",
        "tests/curves/test_hash_to_curve.py",
        "tests/curves/test_device_points.py",
        "tests/msm/test_device.py",
        "tests/msm/test_glv.py",
        "tests/msm/test_plan.py",
        "tests/bench/test_msm.py",
        "tests/fields/test_extension_conformance.py",
        "tests/fields/test_extension_arrays.py",
        "tests/fields/test_square_roots.py",
    ),
    "transforms": (
        "tests/fields/test_transforms.py",
        "tests/fields/test_transform_conformance.py",
        "tests/fields/test_transforms_of_host_arrays.py",
        "tests/fields/test_polynomials.py",
        "tests/fields/test_polynomial_division.py",
        "tests/fields/test_interpolation.py",
        "tests/fields/test_domains.py",
    ),
    "elements": (
        "tests/fields/test_field_conformance.py",
        "tests/fields/test_encoding.py",
        "tests/fields/test_oracles.py",
        "tests/fields/test_operands.py",
        "tests/fields/test_array_operators.py",
        "tests/fields/test_fields.py",
        "tests/fields/test_scans.py",
    ),
    "Groth16": (
        "tests/groth16/test_proving.py",
        "tests/groth16/test_constraint_check.py",
        "tests/groth16/test_page.py",
        "tests/groth16/test_prove_many.py",
        "tests/groth16/test_circuit_proof.py",
        "tests/groth16/test_secrets.py",
        "tests/groth16/test_group_check.py",
        "tests/groth16/test_zkey_file.py",
        "tests/cli/test_groth16.py",
        "tests/bench/test_groth16.py",
        "tests/msm/test_joint.py",
    ),
    "small curves": (
        "tests/curves/test_device_small_curves.py",
        "tests/curves/test_wide_points.py",
        "tests/msm/test_run.py",
        "tests/msm/test_tables.py",
    ),
}
"""The files and folders whose tests run the same pipelines. Lavapipe translates each for up to
seconds in every process."""
GROUPS = {name: group for group, names in SHARED_PIPELINES.items() for name in names}
LONG = (
    "tests/compile_report/test_report.py",
    "tests/vulkan/test_swiftshader_curves.py",
    "Groth16",
    "tests/vulkan/test_swiftshader.py",
    MAINNET,
    "BLS12-381",
    "tests/cluster",
    "transforms",
    "elements",
    "small curves",
)
"""The groups that take the longest, which run first. Files of seconds follow, so that no worker
waits at the end for one that began such a group late."""


def find_group(nodeid: str) -> str:
    """The group of tests that one worker runs, for what they share: the tests of a file; all of
    tests/cluster, which share a cluster; those of tests/kzg that share the setup with a known
    secret; and the files that share pipelines. A test of `ALONE` is a group by itself."""
    file = nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    if folder in ("tests/cluster", "tests/kzg") and file != MAINNET:
        return GROUPS.get(folder, folder)
    return GROUPS.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers of pytest-xdist get groups of tests, in the order of the tests."""
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = find_group
    return scheduler


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups run first where several workers share the tests."""
    if hasattr(config, "workerinput"):
        places = {name: place for place, name in enumerate(LONG)}
        items.sort(key=lambda item: places.get(find_group(item.nodeid), len(LONG)))


def pytest_collection() -> None:
    """Collect tests without garbage collection, which would find next to nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from garbage collection: they live to the end."""
    gc.enable()
    gc.collect()
    gc.freeze()


class ValidationMessages:
    """The messages of the validation layer to all Vulkan instances of this process."""

    def __init__(self) -> None:
        self._lists: list[list[str]] = []
        self._taken: list[int] = []

    def listen(self, messages: list[str]) -> None:
        """Add the list that receives an instance's messages."""
        self._lists.append(messages)
        self._taken.append(0)

    def take(self) -> list[str]:
        """The messages since the last call."""
        said = []
        for number, messages in enumerate(self._lists):
            said += messages[self._taken[number] :]
            self._taken[number] = len(messages)
        return said


def elements(prime: Prime, count: int, seed: int) -> list[int]:
    """Random field elements, about half of them values at which carries and reductions change."""
    draw = random.Random(seed)
    edges = [0, 1, 2, prime.modulus // 2, prime.modulus - 2, prime.modulus - 1]
    return [
        draw.choice(edges) if draw.random() < 0.5 else draw.randrange(prime.modulus)
        for _ in range(count)
    ]


@pytest.fixture(scope="session", autouse=True)
def validation_messages(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ValidationMessages]:
    """Enables the layer for this process and its children, before a backend is opened."""
    folder = tmp_path_factory.mktemp("gpu-executor")
    (folder / "vk_layer_settings.txt").write_text(LAYER_SETTINGS)
    said = ValidationMessages()
    callback_for = vulkan_instance._make_message_callback

    def listening_callback(messages: list[str]) -> Any:
        said.listen(messages)
        return callback_for(messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VK_LAYER_SETTINGS_PATH", str(folder))
        patch.setenv("GPU_VALIDATION", "1")
        patch.setenv("GPU_CACHE_DIR", str(folder / "cache"))
        # Tests depend on plans, and a calibration differs from run to run.
        patch.setenv("GPU_CALIBRATE", "0")
        # Without bytecode files, each interpreter and actor would compile the package again.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        for name in UNSET:
            patch.delenv(name, raising=False)
        patch.setattr(vulkan_instance, "_make_message_callback", listening_callback)
        yield said
    assert said.take() == [], "messages while the last backends were closed"


@pytest.fixture(autouse=True)
def no_validation_messages(validation_messages: ValidationMessages) -> Iterator[None]:
    """Fails a test during which the validation layer reported anything."""
    yield
    said = validation_messages.take()
    assert not said, "the validation layer reports:\n" + "\n".join(said)


@pytest.fixture(autouse=True)
def no_fallback_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process warns once of a fallback; every test is the first that may."""
    monkeypatch.setattr(device_pool, "_fell_back", set())


@pytest.fixture(scope="session")
def gpu(validation_messages: ValidationMessages) -> Iterator[gx.PersistentVulkanBackend]:
    """A backend on the best device, shared by all tests that do not count its resources."""
    with gx.PersistentVulkanBackend() as backend:
        yield backend


@pytest.fixture(scope="session")
def chunking_gpu(validation_messages: ValidationMessages) -> Iterator[gx.PersistentVulkanBackend]:
    """A shared backend that splits every call of more than 100 elements into chunks."""
    settings = dataclasses.replace(gx.Settings.from_environment(), stream_chunk_elems=CHUNK)
    with gx.PersistentVulkanBackend(settings=settings) as backend:
        yield backend


@pytest.fixture(scope="session")
def vulkan_executor(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.GpuExecutor]:
    """An executor on the best device, shared by tests that lose no device and count nothing."""
    with gx.GpuExecutor("vulkan") as opened:
        yield opened


@pytest.fixture
def fresh_gpu(gpu: gx.PersistentVulkanBackend) -> Iterator[OpenGpu]:
    """Opens backends with some settings changed: `fresh_gpu(stream_chunk_elems=100)`.

    While `gpu` is open too, the loader keeps the driver and the layer: opening another device
    takes 20 ms instead of 80.
    """
    with contextlib.ExitStack() as opened:

        def open_one(**changes: Any) -> gx.PersistentVulkanBackend:
            settings = dataclasses.replace(gx.Settings.from_environment(), **changes)
            return opened.enter_context(gx.PersistentVulkanBackend(settings=settings))

        yield open_one


@pytest.fixture
def staged_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened backends fill inputs in host memory, whether or not the device has a resizable BAR."""
    monkeypatch.setattr(memory, "find_input_purpose", lambda _device: memory.Purpose.UPLOAD)


@pytest.fixture
def direct_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened backends fill inputs in device memory, as on a discrete GPU with a resizable BAR."""
    monkeypatch.setattr(memory, "find_input_purpose", lambda _device: memory.Purpose.INPUT)


@pytest.fixture
def open_webgpu() -> Iterator[OpenWebGpu]:
    """Opens WebGPU executors, by default without files on disk, and closes them after the test."""
    with contextlib.ExitStack() as opened:

        def open_one(**options: Any) -> gx.WgpuExecutor:
            options.setdefault("settings", gx.Settings())
            return opened.enter_context(gx.WgpuExecutor(**options))

        yield open_one


@pytest.fixture
def session(gpu: gx.PersistentVulkanBackend) -> Iterator[Session]:
    """The session of a persistent backend, for tests of its parts."""
    opened = Session(gx.Settings.from_environment())
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def sigint_handler() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt in this process and in its children, however they started.

    A background command of a script (`nohup make test &`) starts with SIGINT ignored. Children
    inherit an ignored signal; a handler is reset to the default when they start.
    """
    while not HANDLED_SIGINTS.empty():
        HANDLED_SIGINTS.get()
    before = signal.signal(signal.SIGINT, raise_keyboard_interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run_python(sigint_handler: None) -> RunPython:
    """Runs a script in a new interpreter, with environment variables set, or unset where None."""

    def run(script: str, **variables: str | None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {name: value or "" for name, value in variables.items()}
        for name, value in variables.items():
            if value is None:
                del environment[name]
        command = [sys.executable, "-W", "error", "-c", script]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=400
        )

    return run
