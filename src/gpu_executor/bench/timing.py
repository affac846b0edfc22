"""Timing on the host's clock: one function, several in interleaved rounds, device-resident work."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_executor.bench.sampled import Sampled
from gpu_executor.calls.dispatch import Step
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

MAX_STEPS_TOGETHER = 16
"""Steps of one submission. Submitting takes 8 us on a Neoverse-N1, which would distort the time of
a single step of 40 us, such as squaring 16 Mi small elements at 3.4 TB/s."""
MIN_ROUNDS = 3
Function = Callable[[], object]


def time_function(
    function: Function,
    *,
    max_calls: int = 1_000,
    budget: float = 0.5,
    min_calls: int = 5,
    warm_up: bool = True,
) -> Sampled:
    """Return the median seconds of a call.

    It makes `max_calls` calls, or fewer if the budget in seconds is used up, but at least
    `min_calls`. One untimed call comes first, unless the caller has made one (`warm_up=False`).
    """
    if warm_up:
        function()
    taken: list[float] = []
    end = time.perf_counter() + budget
    while len(taken) < max_calls and (len(taken) < min_calls or time.perf_counter() < end):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return Sampled.median(taken)


def time_interleaved(
    functions: Sequence[Function],
    *,
    min_rounds: int,
    max_rounds: int | None = None,
    budget: float = 0.0,
    warm_up_calls: int = 0,
    timed_calls: int = 1,
) -> Iterator[list[float]]:
    """Call the functions in rounds; yield the seconds of each function, round by round.

    Interleaving spreads a slow phase of the machine over all functions. Every round starts with the
    next function. Each function is called once before the first round. There are `min_rounds`
    rounds, and more up to `max_rounds` until the budget in seconds is used up.

    In a round each function is called `warm_up_calls` times untimed and then `timed_calls` times,
    all in a row, because some functions are slower right after another one ran. A round yields
    `timed_calls` lists.
    """
    for function in functions:
        function()
    end = time.perf_counter() + budget
    for number, order in enumerate(list_orders(len(functions), max_rounds or min_rounds)):
        if number >= min_rounds and time.perf_counter() > end:
            return
        taken = [[0.0] * len(functions) for _ in range(timed_calls)]
        for index in order:
            for _ in range(warm_up_calls):
                functions[index]()
            for seconds in taken:
                begun = time.perf_counter()
                functions[index]()
                seconds[index] = time.perf_counter() - begun
        yield from taken


def list_orders(count: int, rounds: int) -> Iterator[tuple[int, ...]]:
    """Yield the order of each round of so many functions: it starts with the next function."""
    order = deque(range(count))
    for _ in range(rounds):
        yield tuple(order)
        order.rotate(-1)


def call_for(function: Function, seconds: float) -> None:
    """Call the function so long, until a device that was idle has its full clock."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        function()


def compute_ratio(rounds: Sequence[Sequence[float]], first: int, second: int) -> Sampled:
    """Return the median time of the function `first` over that of the function `second`.

    So it agrees with the medians that stand beside it. Its samples are the ratios within each
    round, whose quartiles say how much they vary.
    """
    numerator, denominator = compute_medians([times[first], times[second]] for times in rounds)
    return Sampled(numerator / denominator, (times[first] / times[second] for times in rounds))


def compute_medians(rounds: Iterable[Sequence[float]]) -> list[Sampled]:
    """Return the median seconds of each function over the rounds."""
    return [Sampled.median(times) for times in zip(*rounds, strict=True)]


@dataclass(frozen=True, slots=True)
class TimingBudget:
    """How long device-resident work is timed, in seconds."""

    warm_up: float = 0.4
    """An idle GPU runs at a fraction of its clock (345 of 1,980 MHz on an NVIDIA H200) and needs
    some tenths of a second of continuous work to reach it: a transform of 0.39 ms took 1.5 ms
    during the first quarter of a second."""
    round: float = 0.02
    max_rounds: int = 7
    per_function: float = 0.5
    """No new round starts after this time for each function, except the first `MIN_ROUNDS`."""


DEFAULT_BUDGET = TimingBudget()


def record_graph(gpu: PersistentVulkanBackend, function: Function) -> Function:
    """Record the device work of a function as a graph, which runs without the function's cost on
    the host.

    The graph writes its results to the same memory every time.
    """
    function()  # creates pipelines and tables, which are not part of the graph
    with gpu.graph() as graph:
        function()
    return graph


def time_steps(
    gpu: PersistentVulkanBackend, steps: Sequence[Step], budget: TimingBudget = DEFAULT_BUDGET
) -> list[float]:
    """Return the seconds of each step, repeated in one submission with a barrier after each."""
    memory = gpu._session.device_memory
    graphs, counts = [], []
    for step in steps:
        single = record_graph(gpu, partial(memory.submit, [step]))
        count = min(_count_calls_per_round(gpu, single, budget), MAX_STEPS_TOGETHER)
        graphs.append(record_graph(gpu, partial(memory.submit, [step] * count)))
        counts.append(count)
    taken = time_resident(gpu, graphs, budget)
    return [seconds / count for seconds, count in zip(taken, counts, strict=True)]


def time_resident(
    gpu: PersistentVulkanBackend,
    functions: Sequence[Function],
    budget: TimingBudget = DEFAULT_BUDGET,
    warm_up: Function | None = None,
) -> list[Sampled]:
    """Return the median seconds of a call of each function, in interleaved rounds.

    In a round each function is called many times in a row, and only the last call is waited for.
    `warm_up` keeps the device busy before; by default the first function does.
    """
    warm_up_device(gpu, warm_up or functions[0], budget)
    counts = [_count_calls_per_round(gpu, function, budget) for function in functions]
    rounds: list[list[float]] = []
    end = time.perf_counter() + budget.per_function * len(functions)
    while len(rounds) < budget.max_rounds and (
        len(rounds) < MIN_ROUNDS or time.perf_counter() < end
    ):
        rounds.append(
            [
                _time_calls(gpu, function, count) / count
                for function, count in zip(functions, counts, strict=True)
            ]
        )
    return compute_medians(rounds)


def warm_up_device(gpu: PersistentVulkanBackend, function: Function, budget: TimingBudget) -> None:
    """Call the function until the budget's `warm_up` has passed, and wait for the device after each
    round of calls.

    Without the waits, submissions would queue up for many times as long on a slow device.
    """
    end = time.perf_counter() + budget.warm_up
    count = 1
    while time.perf_counter() < end:
        count = max(int(budget.round * count / _time_calls(gpu, function, count)), 1)


def _count_calls_per_round(
    gpu: PersistentVulkanBackend, function: Function, budget: TimingBudget
) -> int:
    """Return the number of calls that fill a round, estimated from the second of two single
    calls.
    """
    alone = [_time_calls(gpu, function, 1) for _ in range(2)]
    return max(int(budget.round / alone[-1]), 1)


def _time_calls(gpu: PersistentVulkanBackend, function: Function, count: int) -> float:
    """Return the seconds of `count` calls in a row until the device has finished them."""
    begun = time.perf_counter()
    for _ in range(count):
        function()
    gpu._session.device_memory.stream.wait()
    return time.perf_counter() - begun
