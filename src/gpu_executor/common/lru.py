"""Caches of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(OrderedDict[K, V]):
    """A dictionary in the order of last use, the least recently used entry first.

    A new entry is the most recently used one. `use` looks an entry up and marks it as used; `get`
    and `[]` only look it up. A look-up on the path of every call writes `get` and `move_to_end` in
    place: `use` takes about 0.1 us more than those two. Not safe from several threads: the users
    have locks.
    """

    __slots__ = ()

    def use(self, key: K) -> V | None:
        """The entry under a key, now the most recently used one; None where there is none."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def evict(self, most: int, in_use: Callable[[V], bool] | None = None) -> list[V]:
        """Remove the least recently used entries until `most` are left; returns them.

        An entry that is `in_use` stays, so there may be more than `most` afterwards.
        """
        surplus = len(self) - most
        if surplus <= 0:
            return []
        unused = (key for key, value in self.items() if in_use is None or not in_use(value))
        return [self.pop(key) for key in list(islice(unused, surplus))]


def remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Add an entry to a plain dictionary, which is emptied first when it has `most` entries.

    This is for look-ups on the path of every call, by several threads without a lock: a look-up is
    `dict.get` alone, and no order of use has to be kept.
    """
    if len(known) >= most:
        known.clear()
    known[key] = value
