"""The errors of fields, curves and primes: all are below `GpuError`, and of a built-in kind."""

from __future__ import annotations

import ast
import builtins
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementDivisionError,
    ElementIndexError,
    NoSquareRootError,
    RemovedNameError,
)
from gpu_executor.executor.jobs import copy_exception
from gpu_executor.fields import BABYBEAR, BLS12_381_FQ2, BLS12_381_FR
from tests.support.fields_under_test import Place, in_every_place, make_array

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
PACKAGES = ("curves", "fields", "msm", "ops", "primes")
ALLOWED = {
    ("curves/__init__.py", "AttributeError"),  # Python asks modules and objects for names that
    ("fields/element_array.py", "AttributeError"),  # they do not have, and goes on
    ("primes/named.py", "AttributeError"),
    ("primes/named.py", "ImportError"),  # of `from package import name`, as Python's own
    ("ops/operation.py", "TypeError"),  # an operation without an algorithm: no caller reaches it
}


def list_raised() -> set[tuple[str, str]]:
    """The built-in exceptions that a file of the packages raises or makes, with the file."""
    root, found = Path(gx.__file__).parent, set()
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                call = node.exc if isinstance(node, ast.Raise) else node
                name = call.func if isinstance(call, ast.Call) else call
                if isinstance(name, ast.Name) and isinstance(node, ast.Raise | ast.Call):
                    kind = getattr(builtins, name.id, None)
                    if isinstance(kind, type) and issubclass(kind, Exception):
                        found.add((path.relative_to(root).as_posix(), name.id))
    return {each for each in found if each[1] not in ("NotImplementedError", "AssertionError")}


def test_callers_meet_no_errors_outside_the_tree() -> None:
    assert list_raised() == ALLOWED


@in_every_place
@pytest.mark.parametrize("field", [FR, BABYBEAR], ids=lambda field: field.name)
def test_divisions_and_roots(gpu: Gpu, place: Place, field: gx.Field) -> None:
    x = make_array(gpu, place, field, [4, 0, 1])
    divisions: list[Callable[[], Any]] = [
        lambda: list((1 / x).tolist()),
        lambda: list((x / x).tolist()),
        lambda: field.inverse(x, zero="error").tolist(),
        lambda: x / 0,
        lambda: x / field.modulus,
    ]
    for divide in divisions:
        with pytest.raises(ElementDivisionError) as found:
            divide()
        assert isinstance(found.value, ZeroDivisionError)
        assert isinstance(found.value, gx.GpuError)
    y = make_array(gpu, place, field, [4, 9, field.prime.generator])
    with pytest.raises(NoSquareRootError, match="element 2 is not a square") as root:
        field.sqrt(y)
    assert isinstance(root.value, ValueError)


def test_divisions_in_extension_fields() -> None:
    x = BLS12_381_FQ2.encode([(1, 2), (0, 0)])
    divisions: list[Callable[[], Any]] = [lambda: 1 / x, lambda: x / (0, 0), lambda: x / 0]
    for divide in divisions:
        with pytest.raises(ElementDivisionError):
            divide()


@in_every_place
def test_indices_and_protocols(gpu: Gpu, place: Place) -> None:
    x: Any = make_array(gpu, place, FR, [1, 2, 3])
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ElementIndexError, lambda: x[3]),
        (ElementIndexError, lambda: x[[0, 3]]),
        (ElementIndexError, lambda: x[0, 0]),
        (ElementIndexError, lambda: x[np.array([True, False])]),
        (ElementIndexError, lambda: x["a"]),
        (ElementIndexError, lambda: x.__setitem__(3, 1)),
        (ElementIndexError, lambda: x.__setitem__([-4], 1)),
        (ArgumentTypeError, lambda: x["a":]),
        (ArgumentValueError, lambda: x[::0]),
        (ArgumentTypeError, lambda: len(x[0])),
        (ArgumentTypeError, lambda: iter(x[0])),
        (ArgumentShapeError, lambda: bool(x)),
        (ArgumentValueError, lambda: FR.arange(1, 5, 0)),
        (ArgumentTypeError, FR.arange),
        (RemovedNameError, lambda: x.on_card),
        (ArgumentTypeError, lambda: FR.random(2, seed="a")),  # type: ignore[arg-type]
        (ArgumentValueError, lambda: FR.random(2, seed=-1)),
        (ArgumentTypeError, lambda: FR.concatenate(5)),  # type: ignore[arg-type]
        (ArgumentTypeError, lambda: FR.power(x, np.zeros(2))),  # type: ignore[arg-type]
        (ArgumentTypeError, lambda: FR.inverse(x, zero=np.zeros(2))),  # type: ignore[arg-type]
        (ArgumentTypeError, lambda: FR.to_bytes(x, width=np.zeros(2))),  # type: ignore[arg-type]
    ]
    for kind, call in calls:
        with pytest.raises(kind) as found:
            call()
        assert isinstance(found.value, gx.GpuError)


ERRORS = [
    ElementDivisionError("bls12_381_fr: element 1 is 0"),
    NoSquareRootError("bls12_381_fr: element 2 is not a square"),
    ElementIndexError("index 3 is out of bounds"),
    ArgumentValueError("copy=False is not possible"),
    RemovedNameError("fields.PALLAS is now fields.PALLAS_FQ"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_are_copied_and_pickled(error: gx.GpuError) -> None:
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy_exception(error)):
        assert found is not error
        assert (type(found), found.args, str(found)) == (type(error), error.args, str(error))


def test_an_error_of_a_field_passes_through_an_executor() -> None:
    """A division by zero is found when its quotient is an argument of a call."""
    x = BABYBEAR.encode([1, 0])
    with gx.GpuExecutor() as executor:
        quotient = BABYBEAR.inverse(executor.to_device(x), zero="error")
        with pytest.raises(ElementDivisionError, match="element 1 is 0"):
            executor.submit(gx.kernels.load("babybear_add"), quotient, quotient).result().tolist()
