"""`Operation`: what is computed, with an algorithm for each place where arrays can be.

NumPy arrays are computed with NumPy. For device arrays, their device chooses
(`ArrayDevice.run_operation`): a device that executes steps runs the algorithm that is made of
steps, and the CPU backend applies the NumPy algorithm to the memory of the arrays. No algorithm
asks which device it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from gpu_executor.arrays.device_array import DeviceArray

P = ParamSpec("P")
Result = TypeVar("Result")
Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])


class Operation(Generic[P, Result]):
    """A function with two algorithms, which is called like one function.

    The arrays among its arguments are all in one place. They are arguments of their own, or the
    elements of a list or a tuple.
    """

    def __init__(
        self, host_algorithm: Callable[..., Any], step_algorithm: Callable[..., Any] | None = None
    ) -> None:
        """Both algorithms take the same arguments, each with arrays in its place. `by_steps` may
        add the second one."""
        functools.update_wrapper(self, host_algorithm)
        self.host_algorithm: Callable[P, Result] = host_algorithm
        """Computes with NumPy arrays. It changes none of its arguments."""
        self.step_algorithm = self._refuse_steps if step_algorithm is None else step_algorithm
        """Computes with device arrays: it submits steps to their device."""

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> Result:
        """Compute in the place of the first array, and return arrays in that place."""
        found: Any
        for each in arguments:
            kind = type(each)
            found = each[0] if (kind is list or kind is tuple) and each else each  # type: ignore[index]
            if type(found) is DeviceArray:
                return found.storage.device.run_operation(self, arguments, options)  # type: ignore[no-any-return]
        for found in options.values():
            if type(found) is DeviceArray:
                return found.storage.device.run_operation(self, arguments, options)  # type: ignore[no-any-return]
        return self.host_algorithm(*arguments, **options)

    def by_steps(self, algorithm: Algorithm) -> Algorithm:
        """Decorate the algorithm that is made of steps."""
        self.step_algorithm = algorithm
        return algorithm

    def _refuse_steps(self, *_arguments: Any, **_options: Any) -> Any:
        raise TypeError(f"the operation {self} has no algorithm made of steps; see by_steps")

    def __repr__(self) -> str:
        return f"<Operation {self.__module__}.{self.host_algorithm.__qualname__}>"


def operation(algorithm: Callable[P, Result]) -> Operation[P, Result]:
    """Decorate the NumPy algorithm of an operation, which gives the operation its name, its types
    and its docstring. `by_steps` of the operation decorates the other algorithm."""
    return Operation(algorithm)


def uniform_operation(algorithm: Callable[P, Result]) -> Operation[P, Result]:
    """Decorate an algorithm for arrays in either place, made of other operations."""
    return Operation(algorithm, algorithm)
