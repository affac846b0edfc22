"""Steps of a graph that are reordered so that independent ones are neighbours."""

from __future__ import annotations

import itertools
import random

import pytest

from gpu_executor.steps.bound_steps import BoundStep, Fill, order_by_depth


def make_step(number: int, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> BoundStep[str]:
    return BoundStep(Fill(None, number, 4, b""), (*inputs, *outputs), len(inputs))


def get_numbers(steps: list[BoundStep[str]]) -> list[int]:
    return [step.work.offset for step in steps if isinstance(step.work, Fill)]


def depend(first: BoundStep[str], second: BoundStep[str]) -> bool:
    """Whether a step touches what an earlier one writes, or writes what that one reads."""
    written = set(first.memory[first.inputs :])
    return bool(
        written & set(second.memory) or set(first.memory) & set(second.memory[second.inputs :])
    )


def test_two_chains_are_interleaved() -> None:
    chains = [("a0", "a1", "a2"), ("b0", "b1", "b2")]
    steps = [
        make_step(number, (source,), (target,))
        for number, (source, target) in enumerate(
            pair for chain in chains for pair in itertools.pairwise(chain)
        )
    ]
    assert get_numbers(order_by_depth(steps)) == [0, 2, 1, 3]


def test_steps_that_reuse_memory_keep_their_order() -> None:
    steps = [
        make_step(0, (), ("x",)),
        make_step(1, ("x",), ("y",)),
        make_step(2, (), ("x",)),  # writes what step 1 reads
        make_step(3, ("x",), ("y",)),
    ]
    assert get_numbers(order_by_depth(steps)) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(30))
def test_dependent_steps_keep_their_order(seed: int) -> None:
    draw = random.Random(seed)
    memory = [f"m{each}" for each in range(draw.randrange(2, 12))]
    steps = [
        make_step(
            number,
            tuple(draw.sample(memory, draw.randrange(3) % len(memory))),
            (draw.choice(memory),),
        )
        for number in range(40)
    ]
    ordered = order_by_depth(steps)
    assert sorted(get_numbers(ordered)) == list(range(40))
    places = {number: place for place, number in enumerate(get_numbers(ordered))}
    for one, two in itertools.combinations(range(40), 2):
        if depend(steps[one], steps[two]):
            assert places[one] < places[two]
