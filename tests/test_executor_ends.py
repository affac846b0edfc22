"""Executors and the ends of things: callbacks that exit, Ctrl-C, the collector, the interpreter,
fork(). No crash, no hang: in interpreters of their own, each with a limit of time."""

from __future__ import annotations

import logging
import subprocess
import threading

import numpy as np
import pytest

import gpu_executor as gx
from conftest import RunPython
from executors import ADD, HeldKernel, total, words
from in_child import OPEN_IN_CHILD
from test_waiting import PATIENCE

BEGIN = """
import atexit, gc, os, signal, sys, threading, time
import numpy as np, gpu_executor as gx
from concurrent.futures import as_completed, wait
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
ADD = gx.kernels.load("vector_add_u32")
X = np.arange(3000, dtype=np.uint32)
LONG = gx.kernels.load("bls12_381_fq_mul")
WORDS = np.zeros((1 << 15, 6), np.uint64)  # takes lavapipe some milliseconds, the CPU some more
seen = []

def right(results):
    return all((result == 2 * X).all() for result in results)

signal.alarm(60)
"""


def check_script(
    run_python: RunPython, script: str, said: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    ran = run_python(BEGIN + script)
    assert (ran.returncode, ran.stdout.split()) == (status, said.split()), ran.stderr
    return ran


# --- callbacks ---


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_callback_raises_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def leave(_future: object) -> None:
        raise error("from a callback")

    called = threading.Semaphore(0)
    held = HeldKernel()
    with gx.GpuExecutor("cpu") as executor, caplog.at_level(logging.CRITICAL):
        first = held.hold(executor)
        jobs = [words(10, number) for number in range(20)]
        futures = [executor.submit(ADD, *job) for job in jobs]
        for number, future in enumerate(futures):
            future.add_done_callback(leave if number % 3 else lambda _: called.release())
        held.let_go.set()
        for future, job in zip(futures, jobs, strict=True):
            np.testing.assert_array_equal(future.result(PATIENCE), total(job))
        for _ in range(7):
            assert called.acquire(timeout=PATIENCE)
        job = words(5)
        np.testing.assert_array_equal(executor.submit(ADD, *job).result(PATIENCE), total(job))
        assert first.done()
    if error is not ValueError:  # which futures write down themselves
        assert "callback raised" in caplog.text


def test_a_callback_that_raises_while_jobs_are_cancelled_leaves_none_waiting() -> None:
    def leave(_future: object) -> None:
        raise SystemExit(3)

    held = HeldKernel()
    executor = gx.GpuExecutor("cpu")
    first = held.hold(executor)
    futures = [executor.submit(ADD, *words(5)) for _ in range(6)]
    for future in futures[::2]:
        future.add_done_callback(leave)
    with pytest.raises(SystemExit):
        executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    held.let_go.set()
    executor.shutdown()
    assert first.done()


EXITS_IN_A_CALLBACK = """
with gx.GpuExecutor("vulkan") as executor:
    futures = [executor.submit(ADD, X, X) for _ in range(50)]
    for future in futures[::5]:
        future.add_done_callback(lambda _: sys.exit(3))
    wait(futures)
    assert right([future.result() for future in futures])
    assert (executor.submit(ADD, X, X).result(10) == 2 * X).all()
print("right")
"""


def test_sys_exit_in_a_callback_ends_neither_worker_nor_process(run_python: RunPython) -> None:
    check_script(run_python, EXITS_IN_A_CALLBACK, "right")


# --- Ctrl-C ---

CTRL_C = """
before = binding.live_objects()
with gx.GpuExecutor("vulkan") as executor:
    executor.run(LONG, WORDS, WORDS)
    for way in (
        lambda: executor.run(LONG, WORDS, WORDS),
        lambda: executor.submit(LONG, WORDS, WORDS).result(),
        lambda: executor.submit(LONG, WORDS, WORDS).result(30),
        lambda: executor.run_batch(LONG, [(WORDS, WORDS)] * 5),
        lambda: list(executor.map(LONG, [WORDS] * 5, [WORDS] * 5)),
        lambda: wait([executor.submit(LONG, WORDS, WORDS) for _ in range(5)]),
    ):
        for after in (0.001, 0.01, 0.03):
            timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
            try:
                timer.start()
                while True:
                    way()
            except KeyboardInterrupt:
                pass
            timer.join()
        assert right(executor.run_batch(ADD, [(X, X)] * 5))
        assert right([executor.submit(ADD, X, X).result(30)])
    assert executor.stats().devices[0].failed is None
del way
gc.collect()  # errors hold what was used where they were raised
assert binding.live_objects() == before
print("right")
"""


def test_ctrl_c_gets_through_and_the_executor_goes_on(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C, "right")


CTRL_C_ANYWHERE = """
import random
draw, interrupts, armed = random.Random(1), 0, False

def press(_number, frame):
    # Where this package's own code is run: an interrupt may leave the locks of futures locked.
    if not armed:
        return  # it was on its way when the timer was stopped
    if frame is None or "gpu_executor/executor" not in frame.f_code.co_filename:
        signal.setitimer(signal.ITIMER_REAL, 5e-6)
    else:
        raise KeyboardInterrupt

signal.alarm(0)
signal.signal(signal.SIGALRM, press)
x = X[:10]
end = time.monotonic() + 5
with gx.GpuExecutor("cpu") as executor:
    while time.monotonic() < end:
        future = None
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 3e-4))
            future = executor.submit(ADD, x, x)
            result = future.result()
            armed = False
            assert (result == 2 * x).all()
        except KeyboardInterrupt:
            interrupts += 1
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if future is not None:
            error = future.exception(20)
            assert error is None or isinstance(error, KeyboardInterrupt), error
        assert (executor.submit(ADD, x, x).result(20) == 2 * x).all()
assert interrupts > 100, interrupts
print("right")
"""


def test_ctrl_c_anywhere_leaves_no_future_waiting(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C_ANYWHERE, "right")


CTRL_C_WHILE_SHUTTING_DOWN = """
executor = gx.GpuExecutor("vulkan")
futures = [executor.submit(LONG, WORDS, WORDS) for _ in range(20)]
timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
timer.start()
try:
    executor.shutdown()
except KeyboardInterrupt:
    print("interrupted")
wait(futures)
assert all(future.exception() is None for future in futures)
executor.shutdown()
del futures  # whose results may be mapped memory
assert binding.live_objects() == {}
print("right")
"""


def test_ctrl_c_while_it_shuts_down_can_be_followed_by_another_try(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C_WHILE_SHUTTING_DOWN, "interrupted right")


# --- the collector ---

COLLECTED = """
def used(executor, number):
    futures = [executor.submit(ADD, X, X) for _ in range(number)]
    return futures

# In the thread that drops it, with work in line.
futures = used(gx.GpuExecutor("vulkan"), 30)
assert right([future.result() for future in futures])

# In its own worker: the last reference is in a callback.
executor, done = gx.GpuExecutor("vulkan"), threading.Event()
class Last:
    def __init__(self, executor):
        self.executor = executor
    def __call__(self, _):
        del self.executor
        gc.collect()
        done.set()
future = executor.submit(LONG, WORDS, WORDS)
future.add_done_callback(Last(executor))
del executor
wait([future])
assert done.wait(30)

# By the collector, in a thread that is inside the line of another executor.
other = gx.GpuExecutor("vulkan")
for _ in range(10):
    cycle = [gx.GpuExecutor("vulkan")]
    cycle.append(cycle)
    cycle[0].submit(ADD, X, X)
    del cycle
    gc.set_threshold(1, 1, 1)
    assert right([future.result() for future in [other.submit(ADD, X, X) for _ in range(20)]])
    gc.set_threshold(700, 10, 10)
del other, future, futures
gc.collect()
for thread in threading.enumerate():
    if thread.name.startswith("gpu-executor"):
        thread.join(30)
assert binding.live_objects() == {}, binding.live_objects()
print("right")
"""


def test_executors_that_are_collected_end_wherever_that_happens(run_python: RunPython) -> None:
    check_script(run_python, COLLECTED, "right")


IN_THE_LINE_ITSELF = """
dropped = []
executor = gx.GpuExecutor("cpu")
line = executor._line
dropped.append(executor)
futures = [executor.submit(ADD, X, X) for _ in range(5)]
del executor
with line._lock:
    dropped.clear()
    gc.collect()
    assert line.closed
assert right([future.result(20) for future in futures])
print("right")
"""


def test_one_that_is_collected_by_who_holds_its_lock_ends(run_python: RunPython) -> None:
    check_script(run_python, IN_THE_LINE_ITSELF, "right")


# --- the interpreter ---

ENDS_WITH_WORK = """
atexit.register(lambda: print(len(seen)))  # last
kept = gx.GpuExecutor("{backend}")
others = [gx.GpuExecutor("{backend}") for _ in range(2)]
for executor in (kept, *others):
    executor.run(ADD, X, X)
    for _ in range(20):
        future = executor.submit(ADD, X, X)
        future.add_done_callback(lambda future: seen.append((future.result() == 2 * X).all()))
    executor.submit(LONG, WORDS, WORDS)
del others
{ending}
"""


ENDINGS = {
    "end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "Ctrl-C": ("raise KeyboardInterrupt", -2),
    "error": ("1 // 0", 1),
}


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        *(("vulkan", how) for how in ENDINGS),
        # The interpreter goes the same way to its end from all of them.
        *((backend, how) for backend in ("webgpu", "cpu") for how in ("end", "Ctrl-C")),
    ],
)
def test_an_interpreter_that_ends_runs_what_is_in_line(
    run_python: RunPython, backend: str, how: str
) -> None:
    ending, status = ENDINGS[how]
    ran = run_python(BEGIN + ENDS_WITH_WORK.format(backend=backend, ending=ending))
    assert (ran.returncode, ran.stdout.split()) == (status, ["60"]), ran.stderr


ENDS_WITH_A_REOPENED_DEVICE = """
atexit.register(lambda: print(len(seen), set(seen), device.counts.reopened))
executor, submit, left = gx.GpuExecutor("vulkan"), vk.vkQueueSubmit, [1]
device = executor._devices[0]
def lost(*arguments):
    left[0] -= 1
    if left[0] == 0:
        raise binding._error("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
    return submit(*arguments)
vk.vkQueueSubmit = lost
executor.run(ADD, X, X)
assert device.counts.reopened == 1
for _ in range(30):
    future = executor.submit(LONG, WORDS, WORDS)
    future.add_done_callback(lambda future: seen.append(future.exception()))
"""


def test_a_device_that_was_opened_again_is_not_closed_before_its_line_is_empty(
    run_python: RunPython,
) -> None:
    check_script(run_python, ENDS_WITH_A_REOPENED_DEVICE, "30 {None} 1")


CTRL_C_AT_THE_END = """
executor = gx.GpuExecutor("vulkan")
executor.run(ADD, X, X)
for _ in range(30):
    executor.submit(LONG, WORDS, WORDS)
for after in (0.05, 0.1, 0.15):
    timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True
    timer.start()
print("end", flush=True)
"""


def test_an_impatient_end_is_an_end(run_python: RunPython) -> None:
    ran = run_python(BEGIN + CTRL_C_AT_THE_END)
    assert ran.stdout == "end\n"
    assert ran.returncode in (0, 1, -2, 130), (ran.returncode, ran.stderr)


LOST_AT_THE_END = """
atexit.register(lambda: print(len(seen), all(seen)))
executor, submit, calls = gx.GpuExecutor("vulkan"), vk.vkQueueSubmit, [0]
def lost(*arguments):
    calls[0] += 1
    if calls[0] % 7 == 0:
        raise binding._error("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
    return submit(*arguments)
vk.vkQueueSubmit = lost
for _ in range(100):
    future = executor.submit(ADD, X, X)
    future.add_done_callback(lambda future: seen.append((future.result() == 2 * X).all()))
"""


def test_devices_may_be_lost_while_the_interpreter_ends(run_python: RunPython) -> None:
    check_script(run_python, LOST_AT_THE_END, "100 True")


# --- fork() ---

FORK = (
    OPEN_IN_CHILD
    + """
import multiprocessing
executor = gx.GpuExecutor({options})
assert right(executor.run_batch(ADD, [(X, X)] * 20))
mapped = executor.map(ADD, [X] * 500, [X] * 500)
next(mapped)
work = WORDS[: 1000 if "by cpu" in repr(executor) else len(WORDS)]
running = [executor.submit(LONG, work, work) for _ in range(60)]
if {metrics}:
    executor.serve_metrics(0)

def refused(use):
    try:
        use()
    except gx.errors.ForkedError as error:
        assert "parent process" in str(error)
    else:
        raise AssertionError("not refused")

def child():
    signal.alarm(30)
    for use in (
        lambda: executor.run(ADD, X, X),
        lambda: executor.run_batch(ADD, [(X, X)] * 3),
        lambda: executor.submit(ADD, X, X),
        lambda: executor.map(ADD, [X], [X]),
        lambda: executor.profile(),
        lambda: running[-1].result(),
        lambda: wait(running[40:]).done.pop().result(),
        lambda: list(mapped),
    ):
        refused(use)
    assert repr(executor)
    executor.shutdown()
    mapped.close()

    def use(own):
        assert right(own.run_batch(ADD, [(X, X)] * 20))
        assert right([own.run(ADD, X, X), own.submit(ADD, X, X).result()])

    use_its_own(lambda: gx.GpuExecutor({options}), use, executor.ranking[0].on_gpu)
    print("child", end=" ", flush=True)

"""
)
FORKED = {
    "os.fork": """
pid = os.fork()
if pid == 0:
    child()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
    "multiprocessing": """
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
""",
    "in its with": """
with executor:
    pid = os.fork()
    if pid == 0:
        try:
            with executor:
                child()
                sys.exit(3)
        except SystemExit:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert right(list(mapped))
    assert right(executor.run_batch(ADD, [(X, X)] * 20))
executor = gx.GpuExecutor({options})
""",
}
FORK_END = """
wait(running)
assert all(future.exception() is None for future in running)
assert right(list(mapped))
assert right(executor.run_batch(ADD, [(X, X)] * 20))
executor.shutdown()
print("parent")
"""


@pytest.mark.parametrize("way", FORKED)
@pytest.mark.parametrize("options", ["'vulkan'", "'vulkan', devices=[0, 0]", "'cpu'"])
def test_an_executor_stays_the_parents_and_a_child_may_have_its_own(
    run_python: RunPython, way: str, options: str
) -> None:
    script = FORK.replace("{options}", options).replace("{metrics}", "False")
    forked = FORKED[way].replace("{options}", options)
    check_script(run_python, script + forked + FORK_END, "child parent")


SERVED = """
pid = os.fork()
if pid == 0:
    child()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_metrics_that_the_parent_serves_do_not_hold_the_child(run_python: RunPython) -> None:
    script = FORK.replace("{options}", "'vulkan'").replace("{metrics}", "True")
    check_script(run_python, script + SERVED + FORK_END, "child parent")


FORKED_OFTEN = (
    OPEN_IN_CHILD
    + """
executor = gx.GpuExecutor("vulkan")
stop = threading.Event()

def busy():
    while not stop.is_set():
        assert right([executor.submit(ADD, X, X).result(), executor.run(ADD, X, X)])
        assert right(executor.map(ADD, [X] * 100, [X] * 100))

threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            executor.submit(ADD, X, X)
        except gx.errors.ForkedError:
            executor.shutdown()
            use_its_own(
                lambda: gx.GpuExecutor("vulkan"),
                lambda own: right(own.run_batch(ADD, [(X, X)] * 20)) or os._exit(2),
                executor.ranking[0].on_gpu,
            )
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
executor.shutdown()
print("right")
"""
)


def test_children_may_be_made_while_threads_use_it(run_python: RunPython) -> None:
    check_script(run_python, FORKED_OFTEN, "right")
