"""`TypedArray`, an array whose elements have a meaning beyond their words, and `TypedWords`, the
words of such arrays as the arguments of a call.

A kernel computes on words. A call on typed arrays of a kernel that says what its words mean takes
the words on its way in and returns a typed array: `TypedWords` carry the type from the one to the
other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from gpu_executor.errors import ArgumentTypeError, ExportError


class TypedArray(ABC):
    """An array whose elements have a meaning beyond their words, such as a `FieldArray`.

    It is a class and not a protocol: `isinstance` on a protocol takes 6 us for each array of each
    call.
    """

    __slots__ = ()

    data: Any
    """The words: a device array, or a NumPy array on the host."""

    @abstractmethod
    def convert_for(self, kernel: Any) -> Self:
        """The same elements with the words that a `Kernel` takes; raises if it is not clear what
        words these are."""

    @abstractmethod
    def wrap_like(self, data: Any) -> Self:
        """An array of the same type over other words."""

    @abstractmethod
    def convert_like(self, given: Any) -> Any:
        """The words of `given` as this array would store them; raises if it is of another type or
        shape."""

    def __dlpack__(self, **_options: object) -> object:
        """Refuse: other libraries would compute with the words, not with the elements."""
        raise ExportError(
            f"{type(self).__name__}: other libraries do not know its elements; array.data has the "
            "words of the internal representation, and decoded elements are on the host"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Refuse, as `__dlpack__` does."""
        self.__dlpack__()
        raise AssertionError

    @property
    @abstractmethod
    def type_key(self) -> Hashable:
        """What distinguishes this type from others that have the same words."""

    @abstractmethod
    def describe_type(self) -> str:
        """The type of the elements, in words."""


Typed = TypeVar("Typed", bound=TypedArray)


def get_words(array: Any) -> Any:
    """The words of a typed array; anything else as it is."""
    return array.data if isinstance(array, TypedArray) else array


def is_typed_host_array(array: Any) -> bool:
    """Whether an array is a typed array with its words in host memory."""
    return isinstance(array, TypedArray) and isinstance(array.data, np.ndarray)


def wrap_words(array: Typed, words: Any) -> Typed:
    """A typed array like another one over a copy of its words; itself over its own words."""
    return array if words is array.data else array.wrap_like(words)


class TypedWords(tuple[Any, ...]):
    """The words of a call's arguments, all of which are typed arrays, for a kernel whose only
    output has the type of its arguments."""

    like: TypedArray
    """The first argument, converted for the kernel: the result has its type."""
    out: TypedArray | None
    """The caller's `out`; None for a new array."""

    def __new__(
        cls, words: Iterable[Any], like: TypedArray, out: TypedArray | None = None
    ) -> TypedWords:
        made = super().__new__(cls, words)
        made.like, made.out = like, out
        return made

    def use_out(self, kernel: str, given: Any) -> tuple[Sequence[Any], Any]:
        """The words for a call with the caller's `out`, and the array of words to write to.

        An `out` of words makes plain words of the arguments: the result is the caller's array of
        words, which the caller may change later. A typed `out` of another type than the result
        raises `ArgumentTypeError`. May be called again with the array of words.
        """
        if self.out is not None:
            return self, given
        alone = given[0] if isinstance(given, tuple | list) and len(given) == 1 else given
        if not isinstance(alone, TypedArray):
            return tuple(self), given
        if alone.type_key != self.like.type_key:
            raise ArgumentTypeError(
                f"{kernel}: out 0 has {alone.describe_type()}, and the result has "
                f"{self.like.describe_type()}; make an array for it with field.zeros(shape)"
            )
        return TypedWords(self, self.like, alone), alone.data

    def wrap(self, words: Any) -> TypedArray:
        """The result of the call, given its words: the caller's `out` if they are in it."""
        if self.out is not None and self.out.data is words:
            return self.out
        return self.like.wrap_like(words)
