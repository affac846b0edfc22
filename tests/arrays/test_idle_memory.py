"""IdleMemory: the budget follows the largest call; the least recently used item goes first."""

from __future__ import annotations

from gpu_executor.arrays.idle_memory import IdleItem, IdleMemory, MemoryUse


class FakeHolder:
    """Items of some bytes each, by the time of their last use."""

    def __init__(self, **items: tuple[int, int]) -> None:
        self.items = items
        """The bytes and the last use of each item."""
        self.released: list[str] = []

    def list_idle(self) -> list[IdleItem]:
        return [
            IdleItem(last_used, lambda name=name: self.release(name))  # type: ignore[misc]
            for name, (_, last_used) in self.items.items()
        ]

    def release(self, name: str) -> None:
        del self.items[name]
        self.released.append(name)

    @property
    def nbytes(self) -> int:
        return sum(nbytes for nbytes, _ in self.items.values())


def test_the_limit_is_the_minimum_or_twice_the_largest_call() -> None:
    budget = IdleMemory(1000)
    limits = []
    for nbytes in (10, 500, 501, 800, 20):
        budget.note_call(nbytes)
        limits.append(budget.limit)
    assert limits == [1000, 1000, 1002, 1600, 1600]
    assert budget.largest_call == 800


def test_items_of_all_holders_are_released_in_the_order_of_their_use() -> None:
    slots = FakeHolder(a=(300, 5), b=(300, 1))
    results = FakeHolder(c=(300, 3), d=(300, 4), e=(300, 2))
    budget = IdleMemory(700)
    budget.fits = lambda: slots.nbytes + results.nbytes <= budget.limit
    for holder in (slots, results):
        budget.add_holder(holder.list_idle)
    budget.settle()
    assert (slots.released, results.released) == (["b"], ["e", "c"])
    budget.settle()
    assert sorted(slots.items) + sorted(results.items) == ["a", "d"]
    assert budget.evict(lambda: slots.nbytes == 0)
    assert slots.released + results.released == ["b", "a", "e", "c", "d"]
    assert not budget.evict(lambda: False)


def test_nothing_is_released_while_there_is_enough() -> None:
    holder, budget = FakeHolder(a=(10, 1)), IdleMemory(1)
    budget.add_holder(holder.list_idle)
    budget.settle()  # nothing says that it does not fit
    assert budget.evict(lambda: True)
    assert holder.released == []


def test_memory_use_prints_what_is_not_zero() -> None:
    use = MemoryUse({"slots": 5, "arrays": 0}, {"slots": 1000, "results": 24}, 7, 4096, 2048)
    assert use.bytes_idle == 1024
    assert str(use) == "in use: slots 5; idle: slots 1,000, results 24 (at most 4,096); fragments 7"
    assert str(MemoryUse({}, {}, 0, 1, 0)).startswith("in use: nothing; idle: nothing")
