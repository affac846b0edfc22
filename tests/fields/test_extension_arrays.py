"""Arrays of extension fields behave like NumPy's, and mix with integers and arrays of the base."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    CurveError,
    ElementRangeError,
    KernelError,
)
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FQ,
    BLS12_381_FQ2,
    BN254_FQ2,
    GOLDILOCKS,
    GOLDILOCKS2,
    GOLDILOCKS3,
    ExtensionField,
    Field,
)
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.extensions_under_test import (
    BABYBEAR4,
    TINY2,
    TOWER,
    from_flint,
    make_extension_array,
    on_few_extensions,
    to_flint,
)
from tests.support.fields_under_test import CPU, Place, in_every_place, make_array

Gpu = gx.PersistentVulkanBackend
FQ2 = BLS12_381_FQ2
P = FQ2.modulus


def test_elements_are_tuples_integers_and_lists_of_these() -> None:
    assert FQ2.encode((1, 2)).shape == ()
    assert FQ2.encode([(1, 2), 3]).tolist() == [(1, 2), (3, 0)]
    assert FQ2.encode([[(1, 2)], [(3, 4)]]).shape == (2, 1)
    assert FQ2.encode(np.array([[1, 2], [3, 4]])).tolist() == [(1, 2), (3, 4)]
    assert FQ2.encode((-1, P + 1), reduce=True).item() == (P - 1, 1)
    assert TOWER.encode([((1, 2), (3, 4)), (5, 6), 7]).tolist() == [
        ((1, 2), (3, 4)),
        ((5, 6), (0, 0)),
        ((7, 0), (0, 0)),
    ]
    array = BABYBEAR4.random((2, 3), seed=1)
    assert BABYBEAR4.encode(BABYBEAR4.decode(array)).tolist() == array.tolist()
    assert FQ2.encode([]).shape == (0,)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((1, 2, 3), ArgumentShapeError, "the 2 coefficients of an element"),
        (((1, 2), (3, 4)), ArgumentShapeError, "the 2 coefficients of an element"),
        ([(1, 2), [(3, 4)]], ArgumentShapeError, "rows differ in shape"),
        ((1, 2.5), ArgumentTypeError, "2.5 is neither an integer nor a tuple"),
        ("ab", ArgumentTypeError, "found str"),
        (np.zeros((4, 3), int), ArgumentShapeError, "the last axes hold the coefficients"),
        (np.zeros((4, 2)), ArgumentTypeError, "found float64"),
        ([(0, 0), (1, P)], ElementRangeError, "bls12_381_fq2 from integers: element 1 "),
    ],
)
def test_what_is_no_element_is_refused(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FQ2.encode(values)


@in_every_place
@on_few_extensions
def test_words_have_one_more_axis(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    array = make_extension_array(gpu, place, field, field.random(5, seed=1).tolist())
    axes = field.layout.element_shape
    assert array.numpy().shape == (5, *axes)
    assert axes == (*field.layout.degrees, *field.prime.element_shape)
    canonical = np.asarray(array)
    assert field.from_words(canonical, "canonical").tolist() == array.tolist()
    assert field.from_words(array.words(), array.form).tolist() == array.tolist()
    with pytest.raises(ArgumentShapeError, match="the last axes hold the words of an element"):
        field.from_words(canonical[:, 0], "canonical")
    canonical = canonical.copy()
    canonical[3] = np.iinfo(canonical.dtype).max
    with pytest.raises(ElementRangeError, match="element 3 "):
        field.from_words(canonical, "canonical")


@in_every_place
def test_integers_tuples_and_the_base_mix_with_elements(gpu: Gpu, place: Place) -> None:
    x = make_extension_array(gpu, place, FQ2, [(1, 2), (3, 4), (5, 6)])
    base = make_array(gpu, place, BLS12_381_FQ, [7, 8, 9])
    assert (x * 3).tolist() == (3 * x).tolist() == [(3, 6), (9, 12), (15, 18)]
    assert (x + 1).tolist() == (1 + x).tolist() == [(2, 2), (4, 4), (6, 6)]
    assert (1 - x).tolist() == [(0, P - 2), (P - 2, P - 4), (P - 4, P - 6)]
    assert (x * (0, 1)).tolist() == [(P - 2, 1), (P - 4, 3), (P - 6, 5)]
    assert (x * base).tolist() == (base * x).tolist() == [(7, 14), (24, 32), (45, 54)]
    assert (x + base).tolist() == (base + x).tolist() == [(8, 2), (11, 4), (14, 6)]
    assert (base - x).tolist() == [(6, P - 2), (5, P - 4), (4, P - 6)]
    assert (x * base[1]).tolist() == [(8, 16), (24, 32), (40, 48)]
    assert (x / 2 * 2).tolist() == (x / base * base).tolist() == x.tolist()
    assert (base / x * x).tolist() == [(7, 0), (8, 0), (9, 0)]
    assert (x / (1, 2)).tolist()[0] == (1, 0)
    assert (base == FQ2.where([True] * 3, base, 0)).all() and not (base == x).any()
    assert (x == (3, 4)).tolist() == [False, True, False]
    x += base
    assert x.tolist() == [(8, 2), (11, 4), (14, 6)]
    with pytest.raises(ArgumentTypeError, match="cannot be written to an array of bls12_381_fq"):
        base *= x
    with pytest.raises(ZeroDivisionError, match="division by 0"):
        _ = x / 0


@in_every_place
def test_a_tower_takes_elements_of_every_base(gpu: Gpu, place: Place) -> None:
    x = make_extension_array(gpu, place, TOWER, [((1, 2), (3, 4))])
    middle = TOWER.base
    assert isinstance(middle, ExtensionField)
    y = make_extension_array(gpu, place, middle, [(0, 1)])
    z = make_array(gpu, place, BABYBEAR, [2])
    assert (x * y).tolist() == (y * x).tolist() == [((22, 1), (44, 3))]
    assert (x * z + z).tolist() == (z + z * x).tolist() == [((4, 4), (6, 8))]
    assert [each.tolist() for each in x.coefficients] == [[(1, 2)], [(3, 4)]]


@in_every_place
@on_few_extensions
def test_shapes_are_broadcast(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    a, b = field.random((3, 1, 2), seed=1), field.random((4, 1), seed=2)
    x, y = (make_extension_array(gpu, place, field, each.tolist()) for each in (a, b))
    exact, others = (to_flint(field, each.ravel().tolist()) for each in (a, b))
    wanted = [
        [from_flint(field, [left * right for left in exact[i : i + 2]]) for right in others]
        for i in (0, 2, 4)
    ]
    assert (x * y).tolist() == (y * x).tolist() == wanted
    assert (x[0, 0, 0] * y).tolist() == [row[:1] for row in wanted[0]]
    assert (x[:0] * y[0]).shape == (0, 1, 2)
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast"):
        _ = x * field.random(3) if place == "host" else x * x[:, :, :1].reshape(3)


@in_every_place
@on_few_extensions
def test_arrays_are_indexed_and_joined_as_in_numpy(
    gpu: Gpu, field: ExtensionField, place: Place
) -> None:
    given = field.random((4, 3), seed=3)
    exact = given.ints()
    x = make_extension_array(gpu, place, field, given.tolist())
    mask = np.array([True, False, True, False])
    items: list[Any] = [1, (2, 1), slice(1, 3), (slice(None), -1), [3, 0], mask, (..., None)]
    for item in items:
        wanted = exact[item]  # a tuple for a single element
        assert x[item].tolist() == (wanted if isinstance(wanted, tuple) else wanted.tolist())
    assert x.T.tolist() == exact.T.tolist()
    assert x.reshape(2, -1).tolist() == exact.reshape(2, -1).tolist()
    assert np.concatenate([x, x[:1]]).tolist() == [*exact.tolist(), exact[0].tolist()]
    assert (
        np.stack([x[0], x[1]], axis=1).tolist() == np.stack([exact[0], exact[1]], axis=1).tolist()
    )
    flags = np.arange(12).reshape(4, 3) % 2 == 0
    assert field.where(flags, x, 1)[0, 1].item() == field.encode(1).item()
    assert field.where(flags, x, 1)[0, 0].item() == exact[0, 0]
    x[0] = 5
    x[[1, 2], [0, 1]] = x[3, :2]
    exact[0] = [field.encode(5).item()] * 3
    exact[[1, 2], [0, 1]] = exact[3, :2]
    assert x.tolist() == exact.tolist()
    x[3, 0] = exact[1, 2]
    assert x[3, 0].item() == exact[1, 2]
    assert len({str(each) for each in x.ravel().tolist()}) > 1


@in_every_place
def test_copies_pickles_and_text(gpu: Gpu, place: Place) -> None:
    x = make_extension_array(gpu, place, FQ2, [(1, 2), (3, P - 4)])
    again = pickle.loads(pickle.dumps(x))
    assert (again.on_device, again.field, again.tolist()) == (False, FQ2, x.tolist())
    assert again.field is FQ2
    second = copy.deepcopy(x)
    second[0] = 0
    assert second.on_device == x.on_device and x.tolist()[0] == (1, 2)
    named = "host" if place == "host" else "device"
    assert repr(x) == (
        f"<ExtensionArray (2,) of bls12_381_fq2 on the {named}: [(1, 2), (3, {P - 4})]>"
    )
    assert pickle.loads(pickle.dumps(TOWER)) == TOWER
    assert bool(x[0]) and not bool(x[0] - x[0])
    with pytest.raises(TypeError):
        int(x[0])  # type: ignore[call-overload]


@in_every_place
def test_coefficients_are_arrays_of_the_base(gpu: Gpu, place: Place) -> None:
    x = make_extension_array(gpu, place, FQ2, [(1, 2), (3, 4)])
    first, second = x.coefficients
    assert (first.field, first.tolist(), second.tolist()) == (BLS12_381_FQ, [1, 3], [2, 4])
    assert FQ2.from_coefficients(second, first).tolist() == [(2, 1), (4, 3)]
    assert FQ2.from_coefficients(first, 7).tolist() == [(1, 7), (3, 7)]
    second[...] = 9
    assert x.tolist() == [(1, 9), (3, 9)], "the coefficients are views"
    with pytest.raises(ArgumentTypeError, match="an element has 2 coefficients, not 1"):
        FQ2.from_coefficients(first)


@pytest.mark.parametrize("field", [GOLDILOCKS2, TINY2], ids=lambda field: field.name)
def test_new_arrays(field: ExtensionField) -> None:
    assert field.zeros(2).tolist() == [(0, 0)] * 2
    assert field.ones((1, 2)).tolist() == [[(1, 0)] * 2]
    assert field.full(2, (3, 4)).tolist() == [(3, 4)] * 2
    assert field.arange(3).tolist() == [(0, 0), (1, 0), (2, 0)]
    drawn = field.random(400, seed=1)
    assert drawn.tolist() == field.random(400, seed=1).tolist()
    assert len(set(drawn.tolist())) > 200
    assert field.order == field.modulus**2


@pytest.mark.parametrize(
    ("base", "nonresidue", "degree", "message"),
    [
        (Field(17), 2, 2, "u\\^2 - 2 is not irreducible over prime 17: 2 is a square there"),
        (Field(17), 0, 2, "the nonresidue is 0"),
        (Field(17), 3, 3, "3 does not divide q - 1"),
        (Field(7), -1, 4, "4 does not divide q - 1"),
        (Field(7), 6, 3, "6 is a cube there"),
        (Field(13), 4, 4, "4 is a square there"),
        (TINY2, 3, 2, "is a square there"),
        (BLS12_381_FQ, -1, 5, "the degree is 5; it must be 2 to 4"),
        (BLS12_381_FQ, -1, 1, "the degree is 1"),
    ],
)
def test_a_reducible_polynomial_is_refused(
    base: Any, nonresidue: Any, degree: int, message: str
) -> None:
    with pytest.raises(KernelError, match=message):
        ExtensionField(base, nonresidue, degree)


@pytest.mark.parametrize("modulus", [3, 5, 7, 11, 13])
@pytest.mark.parametrize("degree", [2, 3, 4])
def test_irreducible_polynomials_are_those_that_have_no_factors(modulus: int, degree: int) -> None:
    """Compared with FLINT's factors, for every nonresidue."""
    from flint import nmod_poly

    for nonresidue in range(modulus):
        polynomial = nmod_poly([-nonresidue, *[0] * (degree - 1), 1], modulus)
        factors = polynomial.factor()[1]
        is_irreducible = len(factors) == 1 and factors[0][1] == 1
        try:
            ExtensionField(Field(modulus), nonresidue, degree)
        except KernelError:
            assert not is_irreducible, nonresidue
        else:
            assert is_irreducible, nonresidue


def test_wrong_arguments_are_refused(gpu: Gpu) -> None:
    x = FQ2.encode([(1, 2)])
    with pytest.raises(ArgumentTypeError, match="the base of an extension is a Field"):
        gx.ExtensionField(17, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="an array of bn254_fq2 was given to an operation"):
        _ = x + BN254_FQ2.zeros(1)
    with pytest.raises(ArgumentTypeError, match="different places"):
        _ = x * gpu.to_device(x)
    with pytest.raises(ArgumentTypeError, match="different places"):
        _ = x * gpu.to_device(BLS12_381_FQ.ones(1))
    with pytest.raises(ArgumentTypeError, match="bls12_381_fq2: an operand must be"):
        _ = x * 1.5
    with pytest.raises(ArgumentTypeError, match="conjugate\\(array\\) is for degree 2"):
        BABYBEAR4.ones(1).conjugate()
    with pytest.raises(ArgumentTypeError, match="expected an ExtensionArray, found list"):
        FQ2.inverse([1])  # type: ignore[arg-type]
    kernel = gx.kernels.load("bls12_381_fq_add")
    with pytest.raises(ArgumentTypeError, match="does not take elements of bls12_381_fq2"):
        gpu.run(kernel, x, x)
    assert ExtensionField(BLS12_381_FQ, -1) == FQ2 != BN254_FQ2
    assert hash(ExtensionField(BLS12_381_FQ, -1)) == hash(FQ2)


@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
def test_graphs_record_operations_on_elements(gpu: Gpu, backend: str) -> None:
    device = gpu if backend == "vulkan" else CPU
    x, other = (device.to_device(FQ2.random(4, seed=seed)) for seed in (1, 2))
    with gx.graph(x) as run:
        y = FQ2.inverse(x * x + 1)
    run(other)
    assert (y * (other * other + 1) == 1).all()


def test_an_operation_is_one_submission(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    submissions: list[int] = []
    submit = DeviceMemory.submit

    def counted(self: DeviceMemory, steps: Any) -> None:
        submissions.append(len(steps))
        submit(self, steps)

    x, y = (gpu.to_device(FQ2.random(50, seed=seed)) for seed in (1, 2))
    z = gpu.to_device(TOWER.random(50, seed=3))
    FQ2.inverse(x)
    base = x.coefficients[0].copy()
    TOWER.inverse(z * z)
    monkeypatch.setattr(DeviceMemory, "submit", counted)
    for compute, most in (
        (lambda: x + y, 1),
        (lambda: x * y, 1),
        (lambda: FQ2.square(x), 1),
        (lambda: x * 3, 1),
        (lambda: x * base, 1),
        (lambda: FQ2.inverse(x), 12),
        (x.conjugate, 1),
        (lambda: x**7, 4),
        (lambda: z * z, 20),
        (lambda: TOWER.inverse(z), 40),
    ):
        submissions.clear()
        compute()
        assert len(submissions) == 1 and submissions[0] <= most, submissions


@pytest.mark.parametrize("modulus", [3, 5, 7])
@pytest.mark.parametrize("degree", [2, 3, 4])
def test_any_polynomial_is_taken_if_it_is_irreducible(modulus: int, degree: int) -> None:
    """Compared with FLINT's factors, for some polynomials of each kind."""
    from flint import nmod_poly

    drawn, found = random.Random(modulus * degree), set()
    for _ in range(40):
        coefficients = [*(drawn.randrange(modulus) for _ in range(degree)), 1]
        factors = nmod_poly(coefficients, modulus).factor()[1]
        is_irreducible = len(factors) == 1 and factors[0][1] == 1
        found.add(is_irreducible)
        try:
            field = ExtensionField(Field(modulus), polynomial=coefficients)
        except KernelError:
            assert not is_irreducible, coefficients
        else:
            assert is_irreducible, coefficients
            assert field.polynomial == tuple(coefficients)
    assert found == {True, False}


def test_polynomials_name_their_fields() -> None:
    field = ExtensionField(GOLDILOCKS, polynomial=[-1, -1, 0, 1])
    assert (field.name, field.nonresidue) == ("goldilocks[u]/(u^3 - u - 1)", None)
    assert field == GOLDILOCKS3 and hash(field) == hash(GOLDILOCKS3)
    assert pickle.loads(pickle.dumps(GOLDILOCKS3)) is GOLDILOCKS3
    assert pickle.loads(pickle.dumps(field)) == field
    assert ExtensionField(GOLDILOCKS, polynomial=(-7, 0, 1)) == GOLDILOCKS2
    assert ExtensionField(GOLDILOCKS, 7, 3) != GOLDILOCKS3
    assert field.encode((0, 0, 1)) * (0, 1, 0) == (1, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "takes a nonresidue, u\\^degree, or polynomial="),
        ((7,), {"polynomial": (1, 0, 1)}, "or a nonresidue and a degree, not both"),
        ((), {"degree": 3, "polynomial": (1, 0, 1)}, "or a nonresidue and a degree, not both"),
        ((), {"polynomial": (1, 0, 2)}, "the last coefficient of polynomial= is 2; it must be 1"),
        ((), {"polynomial": ()}, "the last coefficient of polynomial= is 0"),
        ((), {"polynomial": 5}, "polynomial= takes the coefficients, .* not int"),
        ((), {"polynomial": (1.5, 0, 1)}, "an operand must be"),
        ((), {"polynomial": (1, 1, 1, 1, 1, 1)}, "the degree is 5; it must be 2 to 4"),
        ((), {"polynomial": (1,)}, "the degree is 0"),
    ],
)
def test_wrong_polynomials_are_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises((ArgumentTypeError, KernelError), match=message):
        ExtensionField(GOLDILOCKS, *arguments, **options)


def test_curves_refuse_fields_with_other_polynomials() -> None:
    field = ExtensionField(Field(7), polynomial=(-3, -1, 1))
    with pytest.raises(CurveError, match="has another polynomial"):
        gx.Curve(field, 0, 1, order=13, generator=(0, 1))
