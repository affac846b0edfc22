"""A kernel's reference: computes a call, or single elements of its results, with NumPy."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_executor.calls.call import Array, Operand, Signature
from gpu_executor.errors import GpuError, KernelError
from gpu_executor.kernel import Kernel


def arrange_inputs(
    signature: Signature, arrays: Sequence[Array], elements: Array | None = None
) -> list[Array]:
    """Return the passed arrays as references take them: with the dtypes of the kernel, in native
    byte order, and with one axis of elements if the kernel works element by element. `elements`
    selects some of these."""
    flat = signature.kernel.split == "elements"
    selected = ... if elements is None else elements
    return [
        _arrange(array, operand, flat=flat)[selected].astype(operand.type.dtype, copy=False)
        for array, operand in zip(arrays, signature.inputs, strict=True)
    ]


def arrange_outputs(signature: Signature, results: Sequence[Array]) -> list[Array]:
    """Return views of the results with the same dtypes and axes."""
    flat = signature.kernel.split == "elements"
    return [
        _arrange(array, operand, flat=flat)
        for array, operand in zip(results, signature.outputs, strict=True)
    ]


def _arrange(array: Array, operand: Operand, *, flat: bool) -> Array:
    array = np.asarray(array)
    if operand.type.dtype.names is not None:
        array = array.view(operand.type.dtype)  # its fields may have other names
    return array.reshape(operand.count, *operand.type.shape) if flat else array


def compute_reference(
    signature: Signature,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    params: Mapping[str, Any],
) -> None:
    """Write the results of a kernel's reference to `outputs`; `params` are its keywords.

    The reference gets copies of in-out arguments, because it may compute in place, and views of
    inputs that it cannot write to.
    """
    kernel = signature.kernel
    check_has_reference(kernel)
    assert kernel.reference is not None
    passed = [
        array.copy() if operand.is_output else _make_read_only(array)
        for array, operand in zip(inputs, signature.inputs, strict=True)
    ]
    what = f"kernel {kernel.name!r}: its reference"
    keywords = {**params, **_find_shape(signature, kernel.reference)}
    with _name_errors(what, passed, keywords):
        computed = kernel.reference(*passed, **keywords)
    _write_results(what, computed, outputs)


def check_has_reference(kernel: Kernel) -> None:
    """Refuse a kernel that the CPU cannot run."""
    if kernel.reference is None:
        raise KernelError(f"kernel {kernel.name!r} has no reference, so the CPU cannot run it")


def compute_elements(
    signature: Signature,
    indices: Sequence[Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    params: Mapping[str, Any],
) -> None:
    """Write single elements of the results to `outputs`, computed by a kernel's `reference_at`.

    `indices` has the indices of the elements of each output. `reference_at` gets them as one array
    if there is one output, and otherwise as a tuple.
    """
    kernel = signature.kernel
    assert kernel.reference_at is not None
    what = f"kernel {kernel.name!r}: at of its reference"
    wanted = indices[0] if len(indices) == 1 else tuple(indices)
    passed = [_make_read_only(each) for each in inputs]
    keywords = {**params, **_find_shape(signature, kernel.reference_at)}
    with _name_errors(what, passed, keywords):
        computed = kernel.reference_at(wanted, *passed, **keywords)
    _write_results(what, computed, outputs)


@contextlib.contextmanager
def _name_errors(what: str, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> Iterator[None]:
    """Add a note to what a reference raises that names the reference and its arrays. The errors of
    the kernels' own references have none."""
    try:
        yield
    except GpuError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
        named = f" and the keywords {', '.join(keywords)}" if keywords else ""
        error.add_note(f"{what} raised this; it was called with the arrays ({shapes}){named}")
        raise


def _find_shape(signature: Signature, reference: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword `out_shape` for a reference that has it: the shape of the kernel's output,
    or a tuple of shapes if it has several. In-out arguments do not count. A reference needs it
    where the passed arrays do not determine the shape."""
    if signature.kernel.split == "elements" or not _takes_out_shape(reference):
        return {}
    shapes = tuple(
        shape
        for (shape, _), operand in zip(signature.results, signature.outputs, strict=True)
        if not operand.is_input
    )
    return {"out_shape": shapes[0] if len(shapes) == 1 else shapes}


def _takes_out_shape(reference: Callable[..., Any]) -> bool:
    try:
        return "out_shape" in inspect.signature(reference).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def _write_results(what: str, computed: Any, outputs: Sequence[Array]) -> None:
    """Copy what a reference returned to `outputs`.

    Results have the shapes of the outputs. They are cast to the dtypes of the outputs: integers
    wrap around, floats are rounded.
    """
    results = computed if isinstance(computed, tuple | list) else (computed,)
    if len(results) != len(outputs):
        raise KernelError(f"{what} returned {len(results)} results for {len(outputs)} outputs")
    for position, (output, result) in enumerate(zip(outputs, results, strict=True)):
        which = f"result {position}" if len(outputs) > 1 else "a result"
        try:
            shape = np.shape(result)
            if shape != output.shape:
                raise KernelError(
                    f"{what} returned {which} of shape {shape}; the shape must be {output.shape}"
                )
            np.copyto(output, result, casting="same_kind")
        except (TypeError, OverflowError) as error:
            raise KernelError(
                f"{what} returned {which} that cannot be converted to {output.dtype.name} "
                f"({error}); convert it with .astype({output.dtype.name!r})"
            ) from None


def _make_read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
