"""fork() with an open executor, which belongs to the parent; a child may open its own."""

from __future__ import annotations

import pytest

from tests.conftest import RunPython
from tests.support.child_process import OPEN_IN_CHILD
from tests.support.executor_scripts import check_script

FORK = (
    OPEN_IN_CHILD
    + """
import multiprocessing
executor = gx.GpuExecutor({options})
assert right(executor.run_batch(ADD, [(X, X)] * 20))
mapped = executor.map(ADD, [X] * 500, [X] * 500)
next(mapped)
work = WORDS[: 1000 if "by cpu" in repr(executor) else len(WORDS)]
# Compiled before the fork: the child would wait forever for locks of a driver that compiles.
executor.run(LONG, work, work)
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
    signal.alarm(120)
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
    script = FORK.replace("{options}", options).replace("{metrics}", "False")
    forked = FORKED[way].replace("{options}", options)
    check_script(run_python, script + forked + FORK_END, "child parent")


def test_the_parents_metrics_server_does_not_block_the_child(run_python: RunPython) -> None:
    script = FORK.replace("{options}", "'vulkan'").replace("{metrics}", "True")
    check_script(run_python, script + FORKED["os.fork"] + FORK_END, "child parent")


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
running = [executor.submit(LONG, WORDS, WORDS) for _ in range(60)]
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
