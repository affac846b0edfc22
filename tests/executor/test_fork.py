"""fork() with an open executor, which belongs to the parent; a child may open its own."""

from __future__ import annotations

import pytest

from tests.conftest import RunPython
from tests.support.child_process import OPEN_IN_CHILD
from tests.support.executor_scripts import BEGIN, check_script

FORK = (
    OPEN_IN_CHILD
    + """
import multiprocessing
executor = gx.GpuExecutor({options})
assert right(executor.run_batch(ADD, [(X, X)] * 20))
mapped = executor.map(ADD, [X] * 500, [X] * 500)
next(mapped)
work = WORDS[:1000] if "by cpu" in repr(executor) else WORDS
# Compiled before the fork: the child would wait forever for locks of a driver that compiles.
executor.run(LONG, work, work)
if {metrics}:
    executor.serve_metrics(0)
running = [executor.submit(LONG, work, work) for _ in range(20 if work is WORDS else 60)]

def refused(use):
    try:
        use()
    except gx.errors.ForkedError as error:
        assert "parent process" in str(error)
    else:
        raise AssertionError("not refused")

def child():
    signal.alarm(120)
    for use in (
        lambda: executor.run(ADD, X, X),
        lambda: executor.run_batch(ADD, [(X, X)] * 3),
        lambda: executor.submit(ADD, X, X),
        lambda: executor.map(ADD, [X], [X]),
        lambda: executor.profile(),
        lambda: running[-1].result(),
        lambda: wait(running[-9:]).done.pop().result(),
        lambda: list(mapped),
    ):
        refused(use)
    assert repr(executor)
    executor.shutdown()
    mapped.close()

    def use(own):
        assert right(own.run_batch(ADD, [(X, X)] * 20))
        assert right([own.run(ADD, X, X), own.submit(ADD, X, X).result()])

    use_own_device(lambda: gx.GpuExecutor({options}), use, executor.ranking[0].on_gpu)
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
mapped = executor.map(ADD, [X] * 5, [X] * 5)
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


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ("'vulkan'", "multiprocessing"),
        ("'vulkan'", "in its with"),
        ("'vulkan', devices=[0, 0]", "os.fork"),
        ("'cpu'", "multiprocessing"),
    ],
)
def test_a_child_cannot_use_the_parents_executor_and_may_open_its_own(
    run_python: RunPython, way: str, options: str
) -> None:
    """The metrics server of a parent does not block its child."""
    metrics = str(way == "os.fork")
    script = FORK.replace("{options}", options).replace("{metrics}", metrics)
    forked = FORKED[way].replace("{options}", options)
    check_script(run_python, script + forked + FORK_END, "child parent")


FORKED_OFTEN = """
executor = gx.GpuExecutor("vulkan")
stop = threading.Event()

def fail(thread):
    sys.excepthook(thread.exc_type, thread.exc_value, thread.exc_traceback)
    os._exit(4)

threading.excepthook = fail

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
        signal.alarm(120)
        try:
            executor.submit(ADD, X, X)
        except gx.errors.ForkedError:
            executor.shutdown()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
executor.shutdown()
print("right")
"""
# The children open no device of their own: the driver's threads may hold its locks when they fork.


def test_fork_works_while_threads_use_an_executor(run_python: RunPython) -> None:
    check_script(run_python, FORKED_OFTEN, "right")


CALLBACKS = """
executor = gx.GpuExecutor("vulkan")
called = []
running = [executor.submit(LONG, WORDS, WORDS) for _ in range(20)]
for future in running:
    future.add_done_callback(called.append)
pid = os.fork()
if pid == 0:
    signal.alarm(120)
    before = len(called)
    assert isinstance(running[-1].exception(), gx.errors.ForkedError)
    assert len(called) == before
    running[-1].add_done_callback(lambda _: print("child", end=" ", flush=True))
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
executor.shutdown()
assert sorted(map(id, called)) == sorted(map(id, running))
print("parent")
"""


def test_callbacks_of_the_parent_are_called_only_in_the_parent(run_python: RunPython) -> None:
    check_script(run_python, CALLBACKS, "child parent")


CHILDREN_END = (
    OPEN_IN_CHILD
    + """
import ctypes, multiprocessing
opened = [gx.GpuExecutor("vulkan") for _ in range({count})]
assert all(right([executor.run(ADD, X, X)]) for executor in opened)
for executor in opened[{left_open}:]:
    executor.shutdown()
on_gpu = opened[0].ranking[0].on_gpu and {left_open} > 0
kept = []

def use(backend, then):
    try:
        own = gx.GpuExecutor(backend)
    except gx.NoDeviceError as error:  # of a parent with a GPU
        assert on_gpu and "fork()" in str(error), error
        return
    assert right([own.run(ADD, X, X)])
    if then == "close":
        own.shutdown()
    elif then == "keep":
        kept.append(own)

def start(number, backend, then, end):
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(120)
    use(backend, then)
    if end == "fork":
        wait(start(number + 10, backend, "drop", "sys.exit"), number + 10)
    atexit.register(print, f"atexit-{number}", end=" ")
    print(f"Python-{number}", end=" ")
    ctypes.CDLL(None).printf(b"C-%d ", number)  # C flushes it when the process ends
    if end == "raise":
        sys.excepthook = lambda *_: None
        raise ValueError
    if end == "os._exit":
        os._exit(number)
    sys.exit(number)

def wait(pid, expected):
    found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if found != expected:
        print(f"child {pid} ended with {found}, not {expected}", file=sys.stderr)
        os._exit(1)

cases = {cases}
sys.stdout.flush()
pids = [start(10 + 20 * n, *case) for n, case in enumerate(cases)]  # several at once
process = multiprocessing.get_context("fork").Process(target=use, args=("vulkan", "keep"))
process.start()
for n, (pid, case) in enumerate(zip(pids, cases)):
    wait(pid, 1 if case[-1] == "raise" else 10 + 20 * n)
process.join()
assert process.exitcode == 0, process.exitcode
assert all(right([executor.run(ADD, X, X)]) for executor in opened[:{left_open}])
"""
)
ALL_ENDS = [
    ("vulkan", "close", "sys.exit"),
    ("vulkan", "drop", "raise"),
    ("vulkan", "keep", "fork"),
    ("vulkan", "keep", "os._exit"),
    ("auto", "drop", "sys.exit"),
]


@pytest.mark.parametrize(
    ("count", "left_open", "cases"),
    [
        pytest.param(2, 2, ALL_ENDS, id="two executors"),
        pytest.param(3, 1, ALL_ENDS[:2], id="one executor and two that are closed"),
        pytest.param(1, 0, ALL_ENDS[1:3], id="a closed executor"),
    ],
)
def test_a_child_that_opened_its_own_executor_ends_with_its_status(
    run_python: RunPython, count: int, left_open: int, cases: list[tuple[str, str, str]]
) -> None:
    script = CHILDREN_END.replace("{count}", str(count)).replace("{left_open}", str(left_open))
    printed = []
    for number, (_, _, end) in enumerate(cases):
        for child in (10 + 20 * number, 20 + 20 * number)[: 2 if end == "fork" else 1]:
            if end != "os._exit":  # which neither flushes nor calls exit handlers
                printed += [f"{what}-{child}" for what in ("Python", "C", "atexit")]
    ran = run_python(BEGIN + script.replace("{cases}", repr(cases)), PYTHONUNBUFFERED=None)
    assert (ran.returncode, sorted(ran.stdout.split())) == (0, sorted(printed)), ran.stderr
    assert "Exception ignored" not in ran.stderr
