"""The pairwise choice has every pair, and few combinations."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.support.pairwise import choose_pairwise, pairs_of

SIZES = [(1, 1), (2, 3), (4, 4), (3, 4, 3), (3, 16, 5), (2, 2, 2, 2), (3, 3, 3, 3)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_of_values_occurs(sizes: tuple[int, ...]) -> None:
    factors = [[f"{number}-{value}" for value in range(size)] for number, size in enumerate(sizes)]
    chosen = choose_pairwise(*factors)
    for first, second in combinations(range(len(factors)), 2):
        found = {(combination[first], combination[second]) for combination in chosen}
        assert found == set(product(factors[first], factors[second]))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_combinations_are_few_and_no_two_are_the_same(sizes: tuple[int, ...]) -> None:
    chosen = choose_pairwise(*map(range, sizes))
    largest, next_largest = sorted(sizes)[-2:][::-1]
    # No choice is smaller than the product of the two largest factors.
    assert largest * next_largest <= len(chosen) <= 1.5 * largest * next_largest
    assert len(set(chosen)) == len(chosen)


def test_the_choice_is_the_same_every_time() -> None:
    factors = "abc", "defg", "hij"
    assert choose_pairwise(*factors) == choose_pairwise(*factors)
    assert choose_pairwise("ab", "cd") == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]


def test_pairs_know_their_factors() -> None:
    assert set(pairs_of(("x", "x"))) == {((0, "x"), (1, "x"))}
