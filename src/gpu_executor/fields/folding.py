"""`fold` of prime fields and of extensions: the arguments of `ops.folding`."""

from __future__ import annotations

from typing import Any

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.fields.element_array import check_choice
from gpu_executor.fields.finite_field import FiniteField, FiniteFieldArray, as_int
from gpu_executor.ops import folding
from gpu_executor.ops.transforms import Order
from gpu_executor.primes import extension
from gpu_executor.primes.extension import Scalar


def fold_values(
    field: FiniteField[Any],
    prime_field: Any,
    values: Any,
    alpha: Any,
    arity: int,
    order: Order,
    coset: int | None,
) -> Any:
    """The values of folded polynomials in `field`; the domain of the values is in `prime_field`."""
    check_choice("order", order, ("natural", "reversed"))
    number = as_int(arity, "arity")
    if number not in folding.ARITIES:
        raise ArgumentValueError(
            f"{field.name}: arity is {number}; fold takes {', '.join(map(str, folding.ARITIES))}"
        )
    options = folding.FoldOptions(
        log_arity=number.bit_length() - 1,
        order=order,
        alpha=_parse_alpha(field, alpha),
        coset=1 if coset is None else prime_field._parse_coset(coset),
    )
    # Values of the prime field stay such. Others that are not elements of this field become some.
    in_prime = isinstance(values, FiniteFieldArray) and values.field == prime_field
    source = prime_field if in_prime else field
    folded = folding.fold(field.layout, source.layout, source._load(values), options)
    return field._wrap(folded)


def _parse_alpha(field: FiniteField[Any], alpha: Any) -> Scalar:
    """The factor as an element of the field. An array on a device is fetched."""
    if not isinstance(alpha, FiniteFieldArray):
        return field._parse_scalar(alpha)
    if alpha.shape:
        raise ArgumentShapeError(
            f"{field.name}: alpha is one element, an array without axes, and its shape is "
            f"{alpha.shape}; index it"
        )
    if alpha.field != field and not field.contains(alpha.field):
        raise ArgumentTypeError(
            f"{field.name}: alpha is an element of {alpha.field.name}, which is neither this field "
            "nor one that it extends"
        )
    return extension.embed(field.layout, alpha.item())
