"""An operation runs the algorithm for the place of its arrays, which their device chooses."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import gpu_executor
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import Algorithms
from gpu_executor.cpu.backend import CpuBackend
from gpu_executor.ops.operation import Operation, operation, uniform_operation


@operation
def add(name: str, arrays: Any, scale: Any = 1) -> Any:
    """The sum."""
    return "host", sum(np.asarray(each) for each in arrays) * scale


@add.by_steps
def add_by_steps(name: str, arrays: Any, scale: Any = 1) -> Any:
    return "steps", name, len(arrays), scale


class StepDevice:
    """A device of no backend, which executes steps."""

    def __init__(self) -> None:
        self.device = self  # it is the storage of its arrays, too

    def run_operation(
        self, chosen: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        return chosen.step_algorithm(*arguments, **options)

    def make(self) -> DeviceArray:
        return DeviceArray((2,), np.dtype(np.uint32), self)


def test_numpy_arrays_take_the_numpy_algorithm() -> None:
    place, found = add("x", [np.array([1, 2]), np.array([3, 4])], scale=2)
    assert place == "host"
    assert found.tolist() == [8, 12]
    assert add("x", [])[0] == "host"


@pytest.mark.parametrize("make", [list, tuple])
def test_a_device_that_executes_steps_gets_the_algorithm_of_steps(make: Any) -> None:
    array = StepDevice().make()
    assert add("x", make([array, array])) == ("steps", "x", 2, 1)
    assert add("x", array, 3) == ("steps", "x", 2, 3)
    assert add("x", arrays=array) == ("steps", "x", 2, 1)


def test_the_cpu_applies_the_numpy_algorithm_to_the_memory_of_device_arrays() -> None:
    @operation
    def double(x: Any, *, plus: Any = 0) -> Any:
        assert isinstance(x, np.ndarray)
        return 2 * x + plus

    with CpuBackend() as cpu:
        x = cpu.to_device(np.array([1, 2], np.uint32))
        found = double(x, plus=x)
        assert isinstance(found, DeviceArray)
        assert found.numpy().tolist() == [3, 6]
        assert double(x=x).numpy().tolist() == [2, 4]


def test_a_uniform_operation_has_one_algorithm() -> None:
    same = uniform_operation(lambda x: x.__class__)
    assert same(StepDevice().make()) is DeviceArray
    assert same(np.zeros(1)) is np.ndarray


def test_an_operation_without_steps_says_so() -> None:
    @operation
    def halve(x: Any) -> Any:
        """Half of x."""
        return x // 2

    assert halve.__doc__ == "Half of x."
    with pytest.raises(TypeError, match="halve> has no algorithm made of steps"):
        halve(StepDevice().make())


def list_operations() -> Iterator[tuple[str, Operation[Any, Any]]]:
    for package in ("ops", "fields", "curves", "kzg"):
        folder = importlib.import_module(f"gpu_executor.{package}")
        for found in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, Operation):
                    yield f"{found.name}.{name}", value


def test_both_algorithms_of_every_operation_take_the_same_arguments() -> None:
    found = dict(list_operations())
    assert gpu_executor.__name__ + ".ops.scans.sum_rows" in found
    for name, each in found.items():
        host, steps = (
            [
                (one.name, one.kind, one.default)
                for one in inspect.signature(own).parameters.values()
            ]
            for own in (each.host_algorithm, each.step_algorithm)
        )
        assert host == steps, name
