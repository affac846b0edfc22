"""Folding equals what Python's integers compute from the coefficients of the polynomials."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import (
    BABYBEAR,
    GOLDILOCKS,
    GOLDILOCKS2,
    GOLDILOCKS3,
    MERSENNE31,
    ExtensionField,
    Field,
)
from gpu_executor.ops.folding import ARITIES
from gpu_executor.ops.transforms import Order
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.extensions_under_test import (
    BABYBEAR4,
    TOWER,
    make_extension_array,
    nest,
    to_flint,
)
from tests.support.fields_under_test import CPU, FULL96, Place, in_every_place, make_array

Gpu = gx.PersistentVulkanBackend
SOME = [FULL96, GOLDILOCKS, BABYBEAR]


def reverse(values: list[Any]) -> list[Any]:
    """The values by bit-reversed index."""
    bits = len(values).bit_length() - 1
    return [values[int(f"{i:0{bits}b}"[::-1], 2) if bits else 0] for i in range(len(values))]


def evaluate(field: Field, coefficients: list[int], coset: int, order: Order) -> list[int]:
    """The values of a polynomial on the coset of a domain of as many points."""
    p, n = field.modulus, len(coefficients)
    root = field.prime.root_of_unity(n.bit_length() - 1)
    points = [coset * pow(root, i, p) % p for i in range(n)]
    values = [sum(c * pow(x, i, p) for i, c in enumerate(coefficients)) % p for x in points]
    return reverse(values) if order == "reversed" else values


def fold_coefficients(field: Field, f: list[int], alpha: int, arity: int) -> list[int]:
    parts = [f[i::arity] for i in range(arity)]
    return [
        sum(pow(alpha, i, field.modulus) * part[k] for i, part in enumerate(parts)) % field.modulus
        for k in range(len(parts[0]))
    ]


@in_every_place
@pytest.mark.parametrize("field", SOME, ids=lambda field: field.name)
@pytest.mark.parametrize(
    ("arity", "n", "order", "coset"),
    [
        (2, 2, "natural", None),
        (2, 64, "reversed", None),
        (2, 64, "natural", 7),
        (4, 32, "natural", None),
        (4, 32, "reversed", 11),
        (8, 8, "reversed", None),
        (8, 64, "natural", 3),
        (16, 64, "reversed", 5),
    ],
)
def test_values_are_those_of_folded_coefficients(
    gpu: Gpu, field: Field, place: Place, arity: int, n: int, order: Order, coset: int | None
) -> None:
    drawn = random.Random(arity * n)
    rows = [[drawn.randrange(field.modulus) for _ in range(n)] for _ in range(2)]
    alpha = drawn.randrange(field.modulus)
    g = 1 if coset is None else coset
    values = make_array(gpu, place, field, [evaluate(field, f, g, order) for f in rows])
    folded = field.fold(values, alpha, arity, order=order, coset=coset)
    wanted = [
        evaluate(
            field,
            fold_coefficients(field, f, alpha, arity),
            pow(g, arity, field.modulus),
            order,
        )
        for f in rows
    ]
    assert folded.tolist() == wanted
    assert (folded.field, folded.form, folded.on_device) == (field, field.form, place != "host")


@in_every_place
@pytest.mark.parametrize(("arity", "order"), [(2, "natural"), (8, "reversed")])
@pytest.mark.parametrize(
    "field", [GOLDILOCKS2, GOLDILOCKS3, BABYBEAR4, TOWER], ids=lambda field: field.name
)
def test_extensions_fold_by_their_own_elements(
    gpu: Gpu, field: ExtensionField, place: Place, arity: int, order: Order
) -> None:
    """A polynomial over an extension is one over the prime field for each integer of an element,
    and FLINT multiplies their folded sums by the powers of alpha."""
    prime, n, coset = field.prime_field, 32, 7
    degree = field.layout.total_degree
    drawn = random.Random(arity)
    f = [[drawn.randrange(field.modulus) for _ in range(n)] for _ in range(degree)]
    values = [evaluate(prime, each, coset, order) for each in f]
    alpha = field.random((), seed=arity)
    factor = to_flint(field, [alpha.item()])[0]

    def fold_exactly(polynomials: list[list[int]]) -> list[Any]:
        """The values of every f_i on the smaller domain, in FLINT's field, summed."""
        total: list[Any] = [0] * (n // arity)
        for i in range(arity):
            parts = [
                evaluate(prime, each[i::arity], pow(coset, arity, field.modulus), order)
                for each in polynomials
            ]
            zeros = [[0] * len(parts[0])] * (degree - len(parts))
            elements = [nest(field, row) for row in zip(*parts, *zeros, strict=True)]
            terms = [each * factor**i for each in to_flint(field, elements)]
            total = [a + b for a, b in zip(total, terms, strict=True)]
        return total

    elements = [nest(field, row) for row in zip(*values, strict=True)]
    array = make_extension_array(gpu, place, field, elements)
    folded = field.fold(array, alpha, arity, order=order, coset=coset)
    assert to_flint(field, folded.tolist()) == fold_exactly(f)
    assert (folded.field, folded.on_device) == (field, place != "host")
    in_prime = make_array(gpu, place, prime, values[0])
    wanted = fold_exactly(f[:1])
    for found in (
        prime.fold(in_prime, alpha, arity, order=order, coset=coset),
        field.fold(in_prime, alpha.item(), arity, order=order, coset=coset),
    ):
        assert to_flint(field, found.tolist()) == wanted


@in_every_place
def test_folding_many_values_equals_transforms(gpu: Gpu, place: Place) -> None:
    """More values than one work-group has."""
    field, n, arity, alpha = BABYBEAR, 1 << 13, 8, 12345
    f = field.random((3, n), seed=1)
    values = field.ntt(f, coset=31)
    array = {"host": lambda x: x, "device": gpu.to_device, "cpu": CPU.to_device}[place](values)
    folded = field.fold(array, alpha, arity, coset=31)
    parts = f.reshape(3, n // arity, arity)
    combined = parts[..., 0]
    for i in range(1, arity):
        combined = combined + parts[..., i] * alpha**i
    wanted = field.ntt(combined, coset=pow(31, arity, field.modulus))
    assert folded.tolist() == wanted.tolist()


def test_folding_is_one_dispatch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    values = gpu.to_device(BABYBEAR4.random(64, seed=1))
    steps: list[Any] = []
    submit = DeviceMemory.submit

    def note(self: DeviceMemory, work: Any) -> None:
        steps.extend(work)
        submit(self, work)

    monkeypatch.setattr(DeviceMemory, "submit", note)
    for arity in ARITIES:
        BABYBEAR4.fold(values, (1, 2, 3, 4), arity)
        assert len(steps) == 1, arity
        steps.clear()


def test_odd_shapes_are_folded(gpu: Gpu) -> None:
    values = GOLDILOCKS.random((0, 8))
    assert GOLDILOCKS.fold(values, 3).shape == (0, 4)
    assert GOLDILOCKS.fold(gpu.to_device(values), 3).shape == (0, 4)
    values = GOLDILOCKS.random((2, 16), seed=1)
    strided = gpu.to_device(values)[:, ::2]
    assert GOLDILOCKS.fold(strided, 3).tolist() == GOLDILOCKS.fold(values[:, ::2], 3).tolist()
    canonical = BABYBEAR.encode([5, 6])
    assert canonical.form == "canonical" and BABYBEAR.fold(canonical, 0).shape == (1,)
    assert MERSENNE31.fold(MERSENNE31.encode([5, 7]), 4).tolist() == [6 - 4]


@pytest.mark.parametrize(
    ("values", "alpha", "options", "error", "message"),
    [
        (8, 3, {"arity": 3}, ArgumentValueError, "arity is 3; fold takes 2, 4, 8, 16"),
        (4, 3, {"arity": 8}, ArgumentShapeError, "folding by 8 takes rows of at least 8 values"),
        (6, 3, {}, ArgumentShapeError, "rows of 2\\^k elements"),
        (8, 3, {"coset": 0}, ArgumentTypeError, "coset must not be a multiple"),
        (8, 3, {"order": "bits"}, ArgumentTypeError, "order"),
        (8, 1.5, {}, ArgumentTypeError, "an operand must be"),
        (8, (1, 2), {}, ArgumentTypeError, "an operand must be"),
        (8, GOLDILOCKS.ones(1), {}, ArgumentShapeError, "alpha is one element"),
        (8, BABYBEAR4.ones(()), {}, ArgumentTypeError, "alpha is an element of babybear"),
    ],
)
def test_what_cannot_be_folded_is_refused(
    values: int, alpha: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GOLDILOCKS.fold(GOLDILOCKS.ones(values), alpha, **options)
    with pytest.raises(ArgumentTypeError, match="goldilocks3"):
        BABYBEAR.fold(BABYBEAR.ones(8), GOLDILOCKS3.ones(()))
    with pytest.raises(ArgumentTypeError):
        GOLDILOCKS3.fold(BABYBEAR.ones(8), 3)
