"""Constants of decorated functions: each value is recorded separately, on every backend that has
graphs."""

from __future__ import annotations

import functools
import gc
import math
import threading
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import ArgumentTypeError
from tests.conformance.conftest import list_able, open_under_test
from tests.support.curves_under_test import SMALL
from tests.support.jobs import ADD_U32

FIELD = gx.fields.BABYBEAR  # its pipelines compile quickly
P = FIELD.modulus
X = [1, 2, 3]


@pytest.fixture(scope="module", params=list_able("graph"))
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def cpu() -> Iterator[Backend]:
    with gx.CpuBackend() as opened:
        yield opened


@dataclass(frozen=True)
class Options:
    rate: Any


class Results(NamedTuple):
    total: Any
    products: Any


Named = namedtuple("Named", "first second")


def weigh(value: Any) -> int:
    """A number that tells values apart, which `==` may not."""
    if isinstance(value, float | np.floating):
        return 3 if math.copysign(1, value) < 0 else 5
    if isinstance(value, int):
        return int(value) + (7 if isinstance(value, bool) else 11)
    if isinstance(value, Options):
        return 2000 + weigh(value.rate)
    if isinstance(value, complex):
        value = [value.real, value.imag]
    items: Iterable[Any] = value.values() if isinstance(value, dict) else value
    return 1000 + sum(weigh(each) * int(40**place) for place, each in enumerate(items))


def make_weigher() -> tuple[Callable[..., Any], list[int]]:
    """A recorded function that multiplies by the weight of a constant, and the weights that it was
    recorded with."""
    recorded: list[int] = []

    @gx.graph
    def multiply(x: Any, value: Any, *, other: Any = 0) -> Any:
        recorded.append(weigh(value) + weigh(other))
        return x * recorded[-1]

    return multiply, recorded


def check(found: Any, weight: int) -> None:
    assert found.tolist() == [weight * each % P for each in X]


def test_constants_that_are_equal_but_differ_are_recorded_separately(backend: Backend) -> None:
    x = backend.to_device(FIELD.encode(X))
    multiply, recorded = make_weigher()
    for _ in range(2):
        for value in (0.0, -0.0, 0, False, 1, True, 1.0, complex(0.0, -0.0)):
            check(multiply(x, value), weigh(value) + 11)
    assert len(recorded) == 8
    nan = float("nan")
    for _ in range(3):
        check(multiply(x, nan), 5 + 11)
        check(multiply(x, [np.float32("nan")]), 1000 + 5 + 11)
        check(multiply(x, 0, other=-0.0), 11 + 3)
        check(multiply(x, 0, other=0.0), 11 + 5)
    assert len(recorded) == 12


def test_a_constant_that_changed_is_another_constant(backend: Backend) -> None:
    x = backend.to_device(FIELD.encode(X))
    multiply, _ = make_weigher()
    changed: list[tuple[Any, Callable[[], Any]]] = []
    numbers, by_name, nested = [1, 2], {"a": 1, "b": 2}, {"a": [1, (2, [3])]}
    array, inner = np.array([1.0, 0.0]), [4]
    changed += [
        (numbers, lambda: numbers.append(3)),
        (numbers, numbers.reverse),
        (by_name, lambda: by_name.update(a=5)),
        (nested, lambda: nested["a"][1][1].append(9)),  # type: ignore[index]
        (array, lambda: array.__setitem__(1, -0.0)),
        (Options(inner), lambda: inner.append(5)),
    ]
    for value, change in changed:
        for form in ({}, {"other": value}):
            check(multiply(x, value, **form), weigh(value) + weigh(form.get("other", 0)))
        change()
        for form in ({}, {"other": value}):
            check(multiply(x, value, **form), weigh(value) + weigh(form.get("other", 0)))


def test_a_numpy_constant_is_used_with_the_contents_that_it_has(backend: Backend) -> None:
    x = backend.to_device(np.arange(1024, dtype=np.uint32))
    calls = []

    @gx.graph
    def add(x: Any, numbers: Any) -> Any:
        calls.append(numbers.copy())
        return backend.run(ADD_U32, x, numbers)

    numbers = np.arange(1024, dtype=np.uint32)  # 4 KiB, the most
    for step in (0, 0, 5, 5):
        numbers[7] += step
        np.testing.assert_array_equal(add(x, numbers).numpy(), x.numpy() + numbers)
        np.testing.assert_array_equal(add(x, numbers[::-1]).numpy(), x.numpy() + numbers[::-1])
    assert len(calls) == 6


def test_objects_of_the_package_are_constants_by_identity(backend: Backend) -> None:
    x = backend.to_device(np.arange(4, dtype=np.uint32))
    calls = []

    @gx.graph
    def run(executor: Any, x: Any, kernels: Any, *, field: Any) -> Any:
        calls.append(field)
        return executor.run(kernels["add"], x, x)

    for field in (FIELD, gx.Field(97), FIELD):
        found = run(backend, x, {"add": ADD_U32}, field=field)
        np.testing.assert_array_equal(found.numpy(), 2 * x.numpy())
    assert len(calls) == 2


def test_ids_of_objects_that_are_gone_mean_nothing(cpu: Backend) -> None:
    x = cpu.to_device(FIELD.encode(X))

    @gx.graph
    def multiply(x: Any, box: Any) -> Any:
        return x * box[0].modulus

    for modulus in (3, 5, 7, 11, 13, 17, 19, 23):
        box = [gx.Field(modulus)]
        for _ in range(2):
            check(multiply(x, box), modulus)
        box.clear()  # the list that was passed no longer holds the field
        gc.collect()


# --- methods ---


class Scaler:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @gx.graph
    def scale(self, x: Any, add: Any = 0) -> Any:
        """Times the factor."""
        return x * self.factor + add

    @classmethod
    @gx.graph
    def shift(cls, x: Any) -> Any:
        return x + len(cls.__name__)


class FasterScaler(Scaler):
    pass


def subtract(self: Scaler, x: Any) -> Any:
    return x - self.factor


def test_the_self_of_a_method_is_compared_by_identity(backend: Backend) -> None:
    x = backend.to_device(FIELD.encode(X))
    three, five = Scaler(3), FasterScaler(5)
    for _ in range(2):
        check(three.scale(x), 3)
        check(five.scale(x), 5)
        check(Scaler.scale(three, x), 3)
        check(Scaler.scale(five, x=x), 5)
    assert five.shift(x).tolist() == [12 + each for each in X]
    assert Scaler.shift(x).tolist() == [6 + each for each in X]
    three.factor = 4  # changes of `self` are not seen
    check(three.scale(x), 3)
    assert (three.scale.__name__, three.scale.__doc__) == ("scale", "Times the factor.")
    method: Any = three.scale
    assert method.__self__ is three


def test_a_recorded_function_can_become_a_method_later(
    cpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scaler, "subtract", gx.graph(subtract), raising=False)
    x = cpu.to_device(FIELD.encode([8, 9]))
    assert Scaler(3).subtract(x).tolist() == [5, 6]  # type: ignore[attr-defined]
    assert Scaler(4).subtract(x).tolist() == [4, 5]  # type: ignore[attr-defined]


def test_an_object_that_is_not_self_is_refused(cpu: Backend) -> None:
    x = cpu.to_device(FIELD.encode(X))
    with pytest.raises(ArgumentTypeError, match="scale: argument 'add' of the graph is a Scaler"):
        Scaler(3).scale(x, Scaler(4))
    with pytest.raises(ArgumentTypeError, match=r"subtract: argument 'self' .* is a Scaler"):
        gx.graph(subtract)(Scaler(3), x)


# --- refused ---


class Plain:
    pass


@dataclass
class Changeable:
    rate: int = 1


def test_other_arguments_are_refused_in_words(cpu: Backend) -> None:
    x = cpu.to_device(FIELD.encode(X))
    endless: list[Any] = []
    endless.append(endless)

    @gx.graph
    def multiply(x: Any, value: Any = 1, *more: Any, other: Any = 1) -> Any:
        raise AssertionError("recorded")

    refused: list[tuple[Any, str]] = [
        (Plain(), "is a Plain; a graph cannot tell .* frozen dataclass"),
        (Changeable(), "is a Changeable; a graph cannot tell"),
        (len, "is a builtin_function_or_method; a graph cannot tell"),
        ({1, 2}, "is a set; a graph cannot tell"),
        ([1, {"a": {1}}], "is a list with a set in it; a graph cannot tell"),
        ([Plain()], "is a list with a Plain in it"),
        (Options(Changeable()), "is an Options with a Changeable in it"),
        (np.zeros(1025, np.uint32), "is an ndarray; it has 4,100 bytes, .* at most 4,096; gpu.to_"),
        ((np.zeros(1025, np.uint32),), "is a tuple with an ndarray in it; it has 4,100 bytes"),
        (np.array([1, None]), "is an ndarray; its dtype object refers to objects"),
        (np.ma.array([1]), r"is a MaskedArray; pass np.asarray\(value\)"),
        ([x], "is a list with a FieldArray in it; a device array is an input if it is an argument"),
        ({"a": x.data}, "is a dict with a .*DeviceArray in it; a device array is an input"),
        (endless, "is a list that contains itself, or is nested too deeply"),
    ]
    for value, words in refused:
        with pytest.raises(ArgumentTypeError, match=f"^multiply: argument 'value' .* {words}"):
            multiply(x, value)
        with pytest.raises(ArgumentTypeError, match=f"^multiply: argument 'other' .* {words}"):
            multiply(x, 1, other=value)
        with pytest.raises(ArgumentTypeError, match=f"^multiply: argument 3 of the graph {words}"):
            multiply(x, 1, 2, value)
    with pytest.raises(ArgumentTypeError, match="device arrays, not FieldArray"):
        multiply(x, FIELD.encode([1]))
    with pytest.raises(ArgumentTypeError, match="at least one device array"):
        multiply(np.arange(3))
    with pytest.raises(ArgumentTypeError, match=r"the function: argument 0 .* is a set"):
        gx.graph(functools.partial(max))({1}, x)


# --- results ---


def test_named_tuples_of_results_keep_their_type(backend: Backend) -> None:
    x = backend.to_device(FIELD.encode(X))

    @gx.graph
    def compute(x: Any, given: Named) -> Any:
        return Results(x + given.first, [Named(x * given.second, (x,))])

    for _ in range(2):
        for given in (Named(1, 2), Named(5, 3)):
            found = compute(x, given)
            assert type(found) is Results
            assert found.total.tolist() == [each + given.first for each in X]
            assert type(found.products) is list
            assert type(found.products[0]) is Named
            assert found.products[0].first.tolist() == [each * given.second for each in X]
            assert found.products[0].second[0].tolist() == X


def test_results_in_other_sequences_are_refused(cpu: Backend) -> None:
    class Rows(list[Any]):
        pass

    class Tagged(Results):
        pass

    def tag(x: Any) -> Tagged:
        found = Tagged(x, x)
        found.note = 1  # type: ignore[attr-defined]
        return found

    x = cpu.to_device(FIELD.encode(X))
    for function, name in ((lambda x: Rows([x]), "Rows"), (tag, "Tagged")):
        with pytest.raises(ArgumentTypeError, match=f"named tuples and lists, not in a {name}"):
            gx.graph(function)(x)


# --- inputs ---


def test_a_recording_does_not_hold_the_arrays_of_its_first_call(backend: Backend) -> None:
    @gx.graph
    def double(x: Any) -> Any:
        return x + x

    x = backend.to_device(FIELD.encode(X))
    storage = weakref.ref(x.data.storage)
    check(double(x), 2)
    backend.synchronize()
    del x
    gc.collect()
    assert storage() is None


def test_points_of_equal_curves_with_other_generators_are_recorded_separately(
    cpu: Backend,
) -> None:
    curve = SMALL[0]
    generator = (curve.generator * 3).tolist()
    other = gx.curves.Curve(
        curve.field, curve.key.a[0], curve.key.b[0], order=curve.order, generator=generator
    )
    assert other == curve

    @gx.graph
    def shift(points: Any) -> Any:
        return points + cpu.to_device(points.curve.generator)

    for own in (curve, other, curve):
        points = own.from_affine(*own.generator.tolist())
        assert shift(cpu.to_device(points)).tolist() == (own.generator * 2).tolist()


def test_constants_of_several_threads_do_not_mix(cpu: Backend) -> None:
    x = cpu.to_device(FIELD.encode(X))
    multiply, _ = make_weigher()
    wrong = []

    def work(start: int) -> None:
        for k in range(40):
            value = [start + k % 3, {"a": -0.0 if k % 2 else 0.0}["a"]]
            found = multiply(x, value).tolist()
            if found != [(weigh(value) + 11) * each % P for each in X]:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(20 * t,)) for t in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
