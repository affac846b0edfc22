"""Executors under Ctrl-C, garbage collection and the exit of the interpreter: no crash and no hang.
Each test runs in its own interpreter, with a time limit."""

from __future__ import annotations

import pytest

from tests.conftest import RunPython
from tests.support.executor_scripts import BEGIN, check_script

# --- Ctrl-C ---

CTRL_C = """
before = binding.count_live_objects()
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
gc.collect()  # tracebacks refer to the arrays
assert binding.count_live_objects() == before
print("right")
"""


def test_ctrl_c_is_raised_and_the_executor_stays_usable(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C, "right")


CTRL_C_ANYWHERE = """
import random
draw, interrupts, armed = random.Random(1), 0, False

def press(_number, frame):
    # Only in this package's own code: an interrupt may leave the locks of futures locked.
    if not armed:
        return  # the signal came while the timer was being stopped
    if frame is None or "gpu_executor/executor" not in frame.f_code.co_filename:
        # A signal within this function waits longer: a slow machine would nest calls without end.
        nested = frame is not None and frame.f_code is press.__code__
        signal.setitimer(signal.ITIMER_REAL, 1e-3 if nested else 5e-6)
    else:
        raise KeyboardInterrupt

signal.alarm(0)
signal.signal(signal.SIGALRM, press)
x = X[:10]
with gx.GpuExecutor("cpu") as executor:
    while interrupts < 500:
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
print("right")
"""


def test_ctrl_c_anywhere_leaves_no_future_unresolved(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C_ANYWHERE, "right")


CTRL_C_WHILE_SHUTTING_DOWN = """
executor = gx.GpuExecutor("vulkan")
futures = [executor.submit(LONG, WORDS, WORDS) for _ in range(15)]
timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
timer.start()
try:
    executor.shutdown()
except KeyboardInterrupt:
    print("interrupted")
wait(futures)
assert all(future.exception() is None for future in futures)
executor.shutdown()
del futures  # their results may be mapped memory
assert binding.count_live_objects() == {}
print("right")
"""


def test_after_ctrl_c_in_shutdown_another_shutdown_works(run_python: RunPython) -> None:
    check_script(run_python, CTRL_C_WHILE_SHUTTING_DOWN, "interrupted right")


# --- garbage collection ---

COLLECTED = """
def used(executor, number):
    futures = [executor.submit(ADD, X, X) for _ in range(number)]
    return futures

# In the thread that drops it, with queued jobs.
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

# By the garbage collector, in a thread that holds the queue lock of another executor.
other = gx.GpuExecutor("vulkan")
for _ in range(4):
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
assert binding.count_live_objects() == {}, binding.count_live_objects()
print("right")
"""


def test_a_garbage_collected_executor_ends_in_any_thread(run_python: RunPython) -> None:
    check_script(run_python, COLLECTED, "right")


UNDER_ITS_OWN_LOCK = """
dropped = []
executor = gx.GpuExecutor("cpu")
queue = executor._queue
dropped.append(executor)
futures = [executor.submit(ADD, X, X) for _ in range(5)]
del executor
with queue._lock:
    dropped.clear()
    gc.collect()
    assert queue.closed
assert right([future.result(20) for future in futures])
print("right")
"""


def test_an_executor_that_is_collected_under_its_own_lock_ends(run_python: RunPython) -> None:
    check_script(run_python, UNDER_ITS_OWN_LOCK, "right")


# --- the exit of the interpreter ---

ENDS_WITH_WORK = """
atexit.register(lambda: print(len(seen)))  # runs last
kept, closed, dropped = (gx.GpuExecutor("{backend}") for _ in range(3))
for executor in (kept, closed, dropped):
    executor.run(ADD, X, X)
    for _ in range(20):
        future = executor.submit(ADD, X, X)
        future.add_done_callback(lambda future: seen.append((future.result() == 2 * X).all()))
    executor.submit(LONG, WORDS, WORDS)
closed.shutdown(wait=False)
del dropped, executor
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
        # The interpreter exits in the same way after all of them.
        ("vulkan", "end"),
        pytest.param("webgpu", "Ctrl-C", marks=pytest.mark.slow),
        ("cpu", "sys.exit"),
        ("cpu", "error"),
    ],
)
def test_the_interpreter_runs_queued_jobs_before_it_exits(
    run_python: RunPython, backend: str, how: str
) -> None:
    ending, status = ENDINGS[how]
    ran = run_python(BEGIN + ENDS_WITH_WORK.format(backend=backend, ending=ending))
    assert (ran.returncode, ran.stdout.split()) == (status, ["60"]), ran.stderr
    assert how != "end" or ran.stderr == ""


ENDS_WITH_A_REOPENED_DEVICE = """
atexit.register(lambda: print(len(seen), set(seen), device.counts.reopened))
executor, submit, left = gx.GpuExecutor("vulkan"), vk.vkQueueSubmit, [1]
device = executor._devices[0]
def lost(*arguments):
    left[0] -= 1
    if left[0] == 0:
        raise binding._make_error("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
    return submit(*arguments)
vk.vkQueueSubmit = lost
executor.run(ADD, X, X)
assert device.counts.reopened == 1
for _ in range(12):
    future = executor.submit(LONG, WORDS, WORDS)
    future.add_done_callback(lambda future: seen.append(future.exception()))
"""


def test_a_reopened_device_is_not_closed_at_exit_before_its_queue_is_empty(
    run_python: RunPython,
) -> None:
    check_script(run_python, ENDS_WITH_A_REOPENED_DEVICE, "12 {None} 1")


CTRL_C_AT_THE_END = """
executor = gx.GpuExecutor("vulkan")
executor.run(ADD, X, X)
for _ in range(15):
    executor.submit(LONG, WORDS, WORDS)
for after in (0.05, 0.1, 0.15):
    timer = threading.Timer(after, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True
    timer.start()
print("end", flush=True)
"""


def test_ctrl_c_at_exit_ends_the_process(run_python: RunPython) -> None:
    ran = run_python(BEGIN + CTRL_C_AT_THE_END)
    assert ran.stdout == "end\n"
    assert ran.returncode in (0, 1, -2, 130), (ran.returncode, ran.stderr)


LOST_AT_THE_END = """
atexit.register(lambda: print(len(seen), all(seen)))
executor, submit, calls = gx.GpuExecutor("vulkan"), vk.vkQueueSubmit, [0]
def lost(*arguments):
    calls[0] += 1
    if calls[0] % 7 == 0:
        raise binding._make_error("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
    return submit(*arguments)
vk.vkQueueSubmit = lost
for _ in range(50):
    future = executor.submit(ADD, X, X)
    future.add_done_callback(lambda future: seen.append((future.result() == 2 * X).all()))
"""


def test_a_device_may_be_lost_at_exit(run_python: RunPython) -> None:
    check_script(run_python, LOST_AT_THE_END, "50 True")
