"""Declarations: the parts of a kernel that its author writes beside the code, in checked form.

`kernel.py` holds them against the code.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.value_keys import NoKeyError, ValueKey
from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel.arguments import Argument, ElementType
from gpu_executor.spirv import BlockMember, ShaderInterface

Split = Literal["elements", "whole"]
Grid = tuple[int, int, int]
"""Work-groups in x, y and z."""
GridRule = tuple[int, ...] | Callable[..., Any]
"""A grid, or a function that computes one from the shapes of the passed arrays."""
PushRule = Callable[..., Sequence[int]]
"""A function that computes push words from the shapes of the passed arrays."""
Push = bytes | PushRule | tuple[bytes, PushRule]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a kernel's code offers to make calls faster; no result depends on it.

    Attributes:
        per_invocation (int | None): The id of the specialization constant for the number of
            elements per invocation, which the plan chooses.
        packed (int): Elements per vector that an invocation loads; it processes those left over
            singly.
        in_place (bool): Promises that an invocation reads every element of its inputs that it needs
            before it writes, and that no other invocation reads what it writes. Then `out=` the
            very array of an input needs no temporary memory on the device.
    """

    per_invocation: int | None = None
    packed: int = 1
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """The computation of a kernel on NumPy arrays, as a whole and for single elements.

    Attributes:
        whole (Callable | None): `whole(*arrays, **params)` returns the outputs.
        at (Callable | None): `at(indices, *arrays, **params)` returns the elements of the outputs
            at flat indices; with several outputs, `indices` is a tuple of an array for each.
    """

    whole: Callable[..., Any] | None
    at: Callable[..., Any] | None = None


REMOVED = {
    "access": 'buffers=["in", "out", ...]',
    "inputs": 'buffers="in, out", which names each buffer in binding order',
    "outputs": 'buffers="in, out", which names each buffer in binding order',
    "dtypes": 'buffers=["u4", ...], or with the access buffers=[("in", "u4"), ...]',
    "push_of": "push=function, or push=(bytes, function)",
    "data": "push=bytes",
    "status": '"status" as the last entry of buffers=',
    "scratch": '("scratch", function) behind the arguments in buffers=',
    "per_invocation": "tuning=gx.Tuning(per_invocation=...)",
    "packed": "tuning=gx.Tuning(per_invocation=..., packed=...)",
    "in_place": "tuning=gx.Tuning(in_place=True)",
    "reference_at": "reference=gx.Reference(function, at=...)",
    "param_types": 'params={"factor": "f32", ...}',
}
"""Keywords that the constructors of kernels had, and what they have instead."""


def refuse_removed(constructor: Callable[P, R]) -> Callable[P, R]:
    """Make a constructor of kernels name the new form of a keyword that it no longer has."""

    @functools.wraps(constructor)
    def construct(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name in REMOVED:
                raise ArgumentTypeError(
                    f"Kernel.{constructor.__name__} has no {name}=; give {REMOVED[name]}"
                )
        return constructor(*args, **keywords)

    return construct


def parse_push(where: str, push: Any) -> tuple[bytes, PushRule | None]:
    """Return the bytes of push constants and the function that computes the words behind them."""
    if callable(push):
        return b"", push
    given, rule = push if isinstance(push, tuple) and len(push) == 2 else (push, None)
    try:
        encoded = bytes(memoryview(given))
    except TypeError:
        encoded = None
    if encoded is None or (isinstance(push, tuple) and not callable(rule)):
        raise KernelError(
            f"{where}: push is {push!r}; it must be bytes, a function of the shapes that returns "
            "32-bit words, or a pair of bytes and such a function"
        )
    return encoded, rule


def parse_tuning(where: str, tuning: Any) -> Tuning:
    if tuning is None:
        return Tuning()
    if not isinstance(tuning, Tuning):
        raise KernelError(f"{where}: tuning is {tuning!r}; it must be a gx.Tuning or None")
    if not _is_number(tuning.packed) or tuning.packed < 1:
        raise KernelError(
            f"{where}: packed of tuning is {tuning.packed!r}; it must be a whole number of "
            "elements, at least 1"
        )
    if tuning.per_invocation is not None and not _is_number(tuning.per_invocation):
        raise KernelError(
            f"{where}: per_invocation of tuning is {tuning.per_invocation!r}; it must be the id of "
            "a specialization constant, or None"
        )
    if not isinstance(tuning.in_place, bool):
        raise KernelError(
            f"{where}: in_place of tuning is {tuning.in_place!r}; it must be True or False"
        )
    return tuning


def _is_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def parse_reference(where: str, reference: Any) -> Reference:
    parsed = reference if isinstance(reference, Reference) else Reference(reference)
    for name, function in (("reference", parsed.whole), ("at of reference", parsed.at)):
        if function is not None and not callable(function):
            raise KernelError(
                f"{where}: {name} is {function!r}; it must be a function or None, and reference a "
                "function, a gx.Reference or None"
            )
    return parsed


def freeze_shapes(shape: Any) -> Any:
    """Return a shape, or a list of shapes, as hashable tuples; a function as it is."""
    if isinstance(shape, list | tuple):
        return tuple(freeze_shapes(each) for each in shape)
    return shape


def freeze_params(params: Any) -> Any:
    """Return default parameters as values that the caller cannot change any more."""
    if isinstance(params, Mapping):
        return tuple((name, freeze_params(value)) for name, value in params.items())
    if isinstance(params, list | tuple):
        return tuple(map(freeze_params, params))
    if isinstance(params, np.ndarray):
        params = params.copy()
        params.flags.writeable = False
    return params


def check_names(where: str, params: Any) -> None:
    """Check the names of the parameters of a WGSL text: strings that differ from each other."""
    is_list = isinstance(params, Sequence | Mapping) and not isinstance(params, str | bytes)
    names = list(params) if is_list else []
    if not is_list or not all(isinstance(name, str) and name for name in names):
        raise KernelError(
            f"{where}: params is {params!r}; it must be a list of the parameters' names, such as "
            "['factor', 'offset'], or a dict of their types, such as {'factor': 'f32'}"
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise KernelError(f"{where}: params has the name {twice[0]!r} twice; give each a name")


def identify_params(params: Any) -> Any:
    """Return what tells default parameters from others, as a hashable value.

    Their text does not: that of a NumPy array has few digits, and dots instead of most elements,
    and that of a NaN has no bits. `repr` serves for values of other types than numbers and arrays.
    """
    if isinstance(params, tuple):
        return tuple(map(identify_params, params))
    key = ValueKey(sys.maxsize)
    try:
        key.add(params)
    except NoKeyError:
        return repr(params)
    return key.freeze()


def is_pairs(params: Any) -> bool:
    """Whether default parameters are pairs of a name and a value, as `freeze_params` makes."""
    return isinstance(params, tuple) and all(
        isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in params
    )


def takes_params(grid: GridRule | None) -> bool:
    if not callable(grid):
        return False
    try:
        return "params" in inspect.signature(grid).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def parse_grid_rule(where: str, grid: Any) -> GridRule | None:
    rule: GridRule | None = grid if grid is None or callable(grid) else parse_grid(where, grid)
    return rule


def parse_grid(where: str, grid: Any) -> Grid:
    """Return work-groups in x, y and z; missing dimensions are 1."""
    given = (grid,) if isinstance(grid, Integral) else grid
    fits = isinstance(given, tuple | list) and 1 <= len(given) <= 3
    if not fits or not all(isinstance(each, Integral) and int(each) >= 1 for each in given):
        raise KernelError(
            f"{where}: grid is {grid!r}; it must be one to three numbers of work-groups, each at "
            "least 1"
        )
    x, y, z = (*map(int, given), 1, 1)[:3]
    return x, y, z


COUNT_NAMES = ("count", "num_elements")
"""Names of the first push constant that say that it is the number of elements."""


def find_count(
    where: str, interface: ShaderInterface, declared: bool | str | None
) -> BlockMember | None:
    """Return the push constant that holds the number of elements; None if none does.

    `declared` is its name, True for the first push constant, False for none, or None: the first
    one if its name says so.
    """
    members = interface.push_members
    first = members[0] if members and members[0].offset == 0 else None
    if declared is None:
        is_named = first is not None and first.name in COUNT_NAMES
        return first if is_named and _can_count(first) else None
    if declared is False:
        return None
    if declared is True:
        if not _can_count(first):
            raise KernelError(
                f"{where}: count=True, but its push constants do not begin with a 32-bit integer"
            )
        return first
    if not isinstance(declared, str):
        raise KernelError(
            f"{where}: count is {declared!r}; it must be the name of a push constant, True, False "
            "or None"
        )
    named = [member for member in members if member.name == declared]
    if not named:
        names = ", ".join(repr(member.name) for member in members if member.name) or "none"
        raise KernelError(
            f"{where}: count is {declared!r}, but the push constants with names are: {names}"
        )
    if not _can_count(named[0]):
        raise KernelError(f"{where}: count is {declared!r}, which is no 32-bit integer: {named[0]}")
    return named[0]


def _can_count(member: BlockMember | None) -> bool:
    """Whether a push constant is a 32-bit integer."""
    return member is not None and member.shape == () and member.dtype in (np.uint32, np.int32)


def encode_init(where: str, arguments: Sequence[Argument], init: Any) -> tuple[bytes | None, ...]:
    outputs = [argument for argument in arguments if argument.access == "out"]
    values = init if isinstance(init, list | tuple) else [init] * len(outputs)
    if len(values) != len(outputs):
        raise KernelError(
            f"{where}: init lists {len(values)} values for {len(outputs)} outputs (in-out "
            "arguments have none)"
        )
    return tuple(
        None if value is None else _encode_element(where, argument.type, value)
        for argument, value in zip(outputs, values, strict=True)
    )


def _encode_element(where: str, type_: ElementType, value: Any) -> bytes:
    """Return the bytes of an element that consists of one number, repeated."""
    try:
        if type_.dtype.kind in "iu" and value != int(value):
            raise ValueError
        with np.errstate(over="raise"):
            filled = np.zeros(type_.shape, type_.dtype)  # the padding of structs, too
            filled[...] = value
    except (TypeError, ValueError, OverflowError, FloatingPointError):
        raise KernelError(f"{where}: init is {value!r}, which does not fit {type_}") from None
    return filled.tobytes()
