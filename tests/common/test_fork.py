"""fork() while a device is open: the child cannot use the parent's device but may open one of its
own, and the parent goes on. Scripts run in new interpreters, with a time limit in each process."""

from __future__ import annotations

import pytest

import gpu_executor as gx
from gpu_executor.common import fork
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
from tests.conftest import RunPython
from tests.support.child_process import OPEN_IN_CHILD

BEGIN = """
import gc, os, signal, sys, threading, time
import numpy as np, gpu_executor as gx
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
ADD = gx.kernels.load("vector_add_u32")
X = np.arange(3000, dtype=np.uint32)
LARGE = np.arange(1 << 17, dtype=np.uint32)  # its sum lies in recycled memory

def check(gpu, x=X):
    assert (gpu.run(ADD, x, x) == 2 * x).all()
    assert all((each == 2 * x).all() for each in gpu.run_batch(ADD, [(x, x)] * 20))

def expect_refused(use):
    try:
        use()
    except gx.errors.ForkedError as error:
        assert "opened in the parent process" in str(error), error
        assert "open another one here" in str(error), error
    else:
        raise AssertionError("not refused")

def forbid_vulkan():
    for name in list(vars(vk)):
        if name.startswith("vk"):
            def called(*_, name=name):
                print("called", name, flush=True)
                os._exit(5)
            setattr(vk, name, called)

def fork(child):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        child()
        print("child", end=" ", flush=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"

signal.alarm(300)
"""
BEGIN += OPEN_IN_CHILD


def run_script(run_python: RunPython, script: str, said: str = "child parent") -> None:
    ran = run_python(BEGIN + script)
    assert (ran.returncode, ran.stdout.split()) == (0, said.split()), ran.stderr


EVERY_USE = """
with gx.PersistentVulkanBackend() as gpu:
    check(gpu)
    there, kept = gpu.to_device(X), gpu.run(ADD, X, X, keep=True)
    large_there = gpu.to_device(LARGE)
    mapped, held = gpu.asarray(X), gpu.run(ADD, LARGE, LARGE)
    imported = gpu.import_array(np.zeros(4096, np.uint32))
    stream = gpu.stream(ADD, [(X, X)] * 50, depth=4)
    next(stream)
    field = gx.Field(97)
    values = gpu.to_device(field.encode([1, 2, 3]))
    with gpu.graph(there) as graph:
        gpu.run(ADD, X, X)

    def child():
        forbid_vulkan()
        for use in (
            lambda: gpu.run(ADD, X, X),
            lambda: gpu.run(ADD, X[:7], X[:7]),
            lambda: gpu.run(ADD, X[:0], X[:0]),
            lambda: gpu.run(ADD, there, kept),
            lambda: gpu.run(ADD, X, X, keep=True),
            lambda: gpu.run_batch(ADD, [(X, X)] * 3),
            lambda: gpu.stream(ADD, [(X, X)]),
            lambda: next(stream),
            lambda: gpu.empty(10),
            lambda: gpu.asarray(X),
            lambda: gpu.to_device(X),
            lambda: gpu.import_array(np.zeros(4096, np.uint32)),
            there.numpy,
            large_there.numpy,
            lambda: graph(X),
            lambda: values + values,
            lambda: gpu.explain(ADD, 10),
            gpu.profile,
            gpu.calibrate,
            gpu.trim,
            gpu.stats,
        ):
            expect_refused(use)
        assert gpu.device.name and repr(gpu) and gpu.validation_messages() == []

    fork(child)
    assert (next(stream) == 2 * X).all()
    assert (there.numpy() == X).all()
    check(gpu)
print("parent")
"""

FREED_IN_THE_CHILD = """
gpu, closed = gx.PersistentVulkanBackend(), gx.PersistentVulkanBackend()
check(gpu)
things = [gpu.to_device(X), gpu.asarray(X), gpu.run(ADD, LARGE, LARGE)]
things += [closed.asarray(X), closed.run(ADD, LARGE, LARGE)]
closed.close()  # the arrays keep its memory alive
imported = gpu.import_array(np.zeros(4096, np.uint32))
stream = gpu.stream(ADD, [(X, X)] * 50, depth=4)
next(stream)

def child():
    global gpu, stream, imported
    forbid_vulkan()
    stream.close()
    imported.close()
    gpu.close()
    gpu.close()
    things.clear()
    gpu = stream = imported = None
    gc.collect()
    assert binding.count_live_objects() == {}

fork(child)
check(gpu)
stream.close()
imported.close()
gpu.close()
things.clear()
assert binding.count_live_objects() == {}, binding.count_live_objects()
print("parent")
"""

OWN_DEVICE = """
gpu = gx.PersistentVulkanBackend()
check(gpu)

def child():
    def use(own):
        check(own)
        check(own, LARGE)
        assert own.validation_messages() == []

    before = binding.count_live_objects()
    for _ in range(2):
        use_own_device(gx.PersistentVulkanBackend, use, gpu.device.kind != "cpu")
        assert binding.count_live_objects() == before == {}
    expect_refused(lambda: gpu.run(ADD, X, X))

fork(child)
check(gpu)
gpu.close()
print("parent")
"""

WHILE_THREADS_RUN = """
gpu, stop = gx.PersistentVulkanBackend(), threading.Event()
check(gpu)

def busy():
    while not stop.is_set():
        check(gpu)
        assert (gpu.to_device(LARGE).numpy() == LARGE).all()

def opening():
    while not stop.is_set():
        with gx.PersistentVulkanBackend() as other:
            assert other.device.name

threads = [threading.Thread(target=each) for each in (busy, busy, busy, opening)]
for thread in threads:
    thread.start()

def child():
    expect_refused(lambda: gpu.run(ADD, X, X))
    use_own_device(gx.PersistentVulkanBackend, check, gpu.device.kind != "cpu")
    gpu.close()

for _ in range(5):
    fork(child)
    time.sleep(0.01)
stop.set()
for thread in threads:
    thread.join()
check(gpu)
print("parent")
"""

PARENT_HAS_A_GPU = """
import dataclasses
gpu, closed = gx.PersistentVulkanBackend(), gx.PersistentVulkanBackend()
for each, name in ((gpu, "a GPU"), (closed, "another")):
    device = each._session._device
    device.info = dataclasses.replace(device.info, kind="discrete", name=name)
closed.close()

def child():
    forbid_vulkan()
    for open in (gx.PersistentVulkanBackend, gx.WgpuExecutor, lambda: gx.GpuExecutor("vulkan")):
        try:
            open()
        except gx.NoDeviceError as error:
            assert "a GPU was open in the parent" in str(error) and "spawn" in str(error), error
        else:
            raise AssertionError("not refused")

fork(child)
check(gpu)
gpu.close()

def another():
    with gx.PersistentVulkanBackend() as own:
        check(own)

fork(another)
print("parent")
"""

IN_THE_MIDDLE_OF_A_BATCH = """
def jobs():
    for number in range(20):
        if number == 10:
            pid = os.fork()
            if pid == 0:
                signal.alarm(120)
                forbid_vulkan()
            else:
                assert os.waitpid(pid, 0)[1] == 0
        yield X, X

with gx.PersistentVulkanBackend() as gpu:
    stream = gpu.stream(ADD, jobs())
    try:
        results = list(stream)
    except gx.errors.ForkedError:
        print("child", end=" ", flush=True)
        os._exit(0)
    assert len(results) == 20 and all((each == 2 * X).all() for each in results)
print("parent")
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(EVERY_USE, "child parent", id="every use is refused in the child"),
        pytest.param(FREED_IN_THE_CHILD, "child parent", id="the child frees nothing"),
        pytest.param(OWN_DEVICE, "child parent", id="the child has its own device"),
        pytest.param(PARENT_HAS_A_GPU, "child child parent", id="a GPU that the parent has open"),
        pytest.param(WHILE_THREADS_RUN, "child " * 5 + "parent", id="while threads run"),
        pytest.param(IN_THE_MIDDLE_OF_A_BATCH, "child parent", id="in the middle of a stream"),
    ],
)
def test_a_child_cannot_use_a_vulkan_device_of_its_parent(
    run_python: RunPython, script: str, said: str
) -> None:
    run_script(run_python, script, said)


WEBGPU = """
def child_alone():
    with gx.WgpuExecutor(settings=gx.Settings()) as own:
        check(own)

fork(child_alone)
with gx.PersistentVulkanBackend() as first:
    on_gpu = first.device.kind != "cpu"
gpu = gx.WgpuExecutor(settings=gx.Settings())
check(gpu)

def child():
    global gpu
    for use in (
        lambda: gpu.run(ADD, X, X),
        lambda: gpu.run_batch(ADD, [(X, X)]),
        lambda: gpu.prepare(ADD, [10]),
        gpu.stats,
        gpu.bucket_cache_stats,
        gpu.trim,
    ):
        expect_refused(use)
    gpu.close()
    assert repr(gpu)
    gpu = None
    gc.collect()
    try:
        gx.WgpuExecutor(settings=gx.Settings())
    except gx.NoDeviceError as error:
        assert "in use in the parent process" in str(error) and "spawn" in str(error)
    else:
        raise AssertionError("not refused")
    use_own_device(gx.PersistentVulkanBackend, check, on_gpu)

fork(child)
check(gpu)
"""

CHILD_ENDS = """
import ctypes
{opened}
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    signal.alarm(120)
    ctypes.CDLL(None).printf(b"child ")  # C flushes it when the process ends
    print("end", end=" ")
    sys.exit(7)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
check(gpu)
print("parent")
"""
OPENED = {
    "Vulkan": "gpu = gx.PersistentVulkanBackend()\ncheck(gpu)\nkept = gpu.to_device(X)",
    "a GPU": """
import dataclasses
gpu = gx.PersistentVulkanBackend()
device = gpu._session._device
device.info = dataclasses.replace(device.info, kind="discrete")
""",
}


def check_ends(run_python: RunPython, opened: str, children: int) -> None:
    ran = run_python(BEGIN + CHILD_ENDS.replace("{opened}", opened))
    said = ["child"] * children + ["end", "parent"]
    assert (ran.returncode, sorted(ran.stdout.split())) == (0, said), ran.stderr


@pytest.mark.parametrize("opened", OPENED)
def test_a_child_exits_with_its_status(run_python: RunPython, opened: str) -> None:
    check_ends(run_python, OPENED[opened], children=1)


def test_webgpu_works_in_a_child_unless_its_parent_uses_it(run_python: RunPython) -> None:
    """In a child that is refused there is Vulkan. Another child exits with its status."""
    check_ends(run_python, WEBGPU, children=3)


def test_the_error_of_a_driver_that_refuses_a_child_mentions_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise binding._make_error("vkCreateDevice", vk.VK_ERROR_INITIALIZATION_FAILED)

    monkeypatch.setattr(vk, "vkCreateDevice", refuse)
    with pytest.raises(gx.errors.VulkanError, match="vkCreateDevice failed"):
        gx.PersistentVulkanBackend()
    monkeypatch.setattr(fork, "_is_child", True)
    with pytest.raises(gx.NoDeviceError, match=r"in this child of fork\(\).*close it there.*spawn"):
        gx.PersistentVulkanBackend()


LEFT_OPEN = """
import numpy as np, gpu_executor as gx
add, x = gx.kernels.load("vector_add_u32"), np.arange(5000, dtype=np.uint32)
opened = gx.PersistentVulkanBackend(), gx.GpuExecutor("vulkan"), gx.WgpuExecutor()
for each in opened:
    assert (each.run(add, x, x) == 2 * x).all()
class Node: pass
cycle = Node()
cycle.itself, cycle.opened = cycle, opened
"""


def test_what_is_open_when_the_interpreter_exits_prints_no_error(run_python: RunPython) -> None:
    ran = run_python(LEFT_OPEN)
    assert ran.returncode == 0
    assert "Exception ignored" not in ran.stderr
