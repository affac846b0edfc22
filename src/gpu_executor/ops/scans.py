"""Sums, products, prefix sums and products, and batched inverses over many elements.

Each public function takes device arrays or NumPy arrays. On a device an algorithm goes over the
elements in a few passes, all in one submission. On the host each step takes all pairs of elements
at once, so the number of NumPy calls grows with log2 n.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.element_references import add, mul
from gpu_executor.kernels.families import PACKED_ELEMENTS, family
from gpu_executor.kernels.passes import (
    direct_inverse_kernel,
    group_inverse_kernel,
    inversion_kernel,
    scan_kernel,
)
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    can_pack,
    count_elements,
    get_shape,
    split_axes,
    with_f64_limbs,
)
from gpu_executor.ops.operation import operation
from gpu_executor.primes import Prime, words
from gpu_executor.primes.number_theory import invert_all

Data = TypeVar("Data", Words, DeviceArray, ElementData)
"""Elements in one place."""

ELEMENTS_PER_INVOCATION = 32
"""Elements that one invocation adds or multiplies in sequence: the next pass has 1/32 of them."""
DIRECT_SUBGROUPS = 1
"""Up to as many elements of several words as invocations with so many subgroups for each scheduler
are inverted one by one, all in parallel: one subgroup takes a scheduler no longer than a part of
it. 2^22 inverses in BLS12-381 Fr took an NVIDIA H200 0.378 ms with these figures, 0.403 ms with
half a subgroup, 0.380 ms with two; with one, 0.429 ms with 16 elements per invocation and 0.383 ms
with 64. On lavapipe, 100,000 inverses took 79 ms with 4 or 16 of them, 91 ms with 64."""
HOST_DIRECT_INVERSES = 1024
"""Up to this many elements are inverted on the host as Python integers: on one Xeon core of
2.5 GHz, 1,000 inverses in BLS12-381 Fr take 2.6 ms, and 3.4 ms with at most 256 direct ones."""
GROUP_SIZES, VECTORS = (8, 128), 4
"""Invocations of a work-group that inverts elements of one integer: of one that inverts few, and of
others; and the vectors of 16 bytes that each of them has
(glsl/inversions/in_groups/group_inverse.comp). A software device computes with all invocations."""
CHUNK = 32
"""Elements of a row that one invocation adds or multiplies in a pass of the prefix sums or
products."""


@operation
def sum_rows(prime: Prime, x: ElementData, rows: int, columns: int) -> ElementData:
    """The sum of each row, as an array of `rows` elements: columns - 1 additions a row.

    `columns` is at least 1.
    """
    return _fold_on_host(add, prime, x, rows, columns)


@operation
def multiply_rows(prime: Prime, x: ElementData, rows: int, columns: int) -> ElementData:
    """The product of each row, as an array of `rows` elements: columns - 1 products a row.

    `columns` is at least 1.
    """
    return _fold_on_host(mul, prime, x, rows, columns)


@operation
def add_prefixes(prime: Prime, x: ElementData, rows: int, columns: int) -> ElementData:
    """y[i] = x[0] + x[1] + ... + x[i] in every row: about two additions per element."""
    return _combine_prefixes_on_host(add, prime, x, rows, columns)


@operation
def multiply_prefixes(prime: Prime, x: ElementData, rows: int, columns: int) -> ElementData:
    """y[i] = x[0] * x[1] * ... * x[i] in every row: about two products per element."""
    return _combine_prefixes_on_host(mul, prime, x, rows, columns)


@operation
def invert(prime: Prime, x: ElementData, *, steps: list[Step] | None = None) -> ElementData:
    """1 / x, and 0 for 0, by Montgomery's trick: three products per element.

    The products of groups of elements are inverted recursively. The last few are inverted directly:
    on the host as Python integers, on a device by division steps (glsl/inverse.glsl). On a device
    one kernel inverts elements of primes below 2^31 and of Goldilocks, a work-group of it a tile.
    More elements than a kernel can bind are inverted in parts. With `steps`, the dispatches on a
    device are appended to them instead of being submitted.
    """
    flat = np.asarray(x).reshape(-1, *prime.element_shape)
    return _invert_on_host(prime, flat).reshape(x.shape)


def make_elements(device: ArrayDevice, prime: Prime, count: int) -> DeviceArray:
    """An uninitialized device array of `count` elements."""
    return device.empty((count, *prime.element_shape), prime.column_dtype)


def make_scan_kernel(device: ArrayDevice, prime: Prime, name: str) -> Kernel:
    """A kernel of `kernels.scans`, with f64 limbs if the device multiplies with them."""
    return scan_kernel(prime, name, f64_limbs=with_f64_limbs(device, prime))


# --- by steps ---


@sum_rows.by_steps
def _sum_rows_by_steps(prime: Prime, x: DeviceArray, rows: int, columns: int) -> DeviceArray:
    return _fold_by_steps(prime, "partial_sums", x, rows, columns, ELEMENTS_PER_INVOCATION, ())


@multiply_rows.by_steps
def _multiply_rows_by_steps(prime: Prime, x: DeviceArray, rows: int, columns: int) -> DeviceArray:
    return _fold_by_steps(prime, "chunk_products", x, rows, columns, CHUNK, (CHUNK,))


def _fold_by_steps(
    prime: Prime,
    kernel_name: str,
    x: DeviceArray,
    rows: int,
    columns: int,
    chunk: int,
    push: tuple[int, ...],
) -> DeviceArray:
    """Let a kernel fold every row in chunks, and those results again, until a row has one. Its push
    words are the columns, those of `push`, and the chunks."""
    device: ArrayDevice = x.storage.device
    work: list[Dispatch] = []
    kernel = make_scan_kernel(device, prime, kernel_name)
    while True:
        chunks = -(-columns // chunk)
        folded = make_elements(device, prime, rows * chunks)
        push_words = columns, *push, chunks
        work.append(Dispatch(kernel, (x, folded), rows * chunks, push_words, grid_stride=True))
        if chunks == 1:
            device.submit(work)
            return folded
        x, columns = folded, chunks


@add_prefixes.by_steps
def _add_prefixes_by_steps(prime: Prime, x: DeviceArray, rows: int, columns: int) -> DeviceArray:
    return _combine_prefixes_by_steps(prime, "chunk_sums", "running_sums", x, rows, columns)


@multiply_prefixes.by_steps
def _multiply_prefixes_by_steps(
    prime: Prime, x: DeviceArray, rows: int, columns: int
) -> DeviceArray:
    return _combine_prefixes_by_steps(prime, "chunk_products", "running_products", x, rows, columns)


def _combine_prefixes_by_steps(
    prime: Prime, chunk_kernel: str, running_kernel: str, x: DeviceArray, rows: int, columns: int
) -> DeviceArray:
    """The prefix sums or products of every row. The first kernel combines the elements of each
    chunk, the second one the prefixes inside chunks."""
    device: ArrayDevice = x.storage.device
    of_chunks, running = (
        make_scan_kernel(device, prime, name) for name in (chunk_kernel, running_kernel)
    )
    y = device.empty(x.shape, x.dtype)
    if x.size:
        work: list[Dispatch] = []
        _append_prefixes(device, prime, of_chunks, running, x, y, rows, columns, work)
        device.submit(work)
    return y


def _append_prefixes(
    device: ArrayDevice,
    prime: Prime,
    of_chunks: Kernel,
    running: Kernel,
    x: DeviceArray,
    y: DeviceArray,
    rows: int,
    columns: int,
    work: list[Dispatch],
) -> None:
    """Append the dispatches that write the prefix sums or products of x to y.

    Combine the elements of each chunk; combine the prefixes of those results, recursively; combine
    the prefixes inside each chunk, beginning with the result of all chunks before it.
    """
    chunks = -(-columns // CHUNK)
    push_words = columns, CHUNK, chunks
    count = rows * chunks
    before = x  # with a single chunk the kernel does not read it
    if chunks > 1:
        found, before = (make_elements(device, prime, count) for _ in range(2))
        work.append(Dispatch(of_chunks, (x, found), count, push_words, grid_stride=True))
        _append_prefixes(device, prime, of_chunks, running, found, before, rows, chunks, work)
    work.append(Dispatch(running, (x, before, y), count, push_words, grid_stride=True))


@invert.by_steps
def _invert_by_steps(
    prime: Prime, x: DeviceArray, *, steps: list[Step] | None = None
) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    y = device.empty(x.shape, x.dtype)
    if x.size:
        work: list[Step] = [] if steps is None else steps
        max_bytes = device.info.limits.max_storage_buffer_range
        if x.nbytes <= max_bytes:
            _append_inverses(device, prime, x, y, work)
        else:
            for part in split_axes(get_shape(prime, x), max_bytes // prime.element_bytes):
                _append_inverses(device, prime, x[part], y[part], work)
        if steps is None:
            device.submit(work)
    return y


def count_direct_inverses(info: DeviceInfo) -> int:
    """How many elements are inverted one by one at most."""
    return info.round_invocations(DIRECT_SUBGROUPS)


def _append_inverses(
    device: ArrayDevice, prime: Prime, x: DeviceArray, y: DeviceArray, work: list[Step]
) -> None:
    """Append the dispatches that write the inverses of x to y.

    Each invocation multiplies its elements and stores the products on the way (one product per
    element). The totals are inverted, recursively. Each invocation then goes back over its
    elements (two products per element).
    """
    count = count_elements(prime, x)
    if family(prime) in PACKED_ELEMENTS:
        work.append(_make_group_inverse(device, prime, x, y, count))
        return
    direct = count_direct_inverses(device.info)
    if count <= direct:
        work.append(Dispatch(direct_inverse_kernel(prime), (x, y), count, grid_stride=True))
        return
    groups = max(-(-count // ELEMENTS_PER_INVOCATION), direct)
    before = device.empty(x.shape, x.dtype)
    products, inverses = (make_elements(device, prime, groups) for _ in range(2))
    forward, backward = (
        inversion_kernel(prime, name, f64_limbs=with_f64_limbs(device, prime))
        for name in ("partial_products", "inverses")
    )
    work.append(Dispatch(forward, (x, before, products), groups, (count,), grid_stride=True))
    _append_inverses(device, prime, products, inverses, work)
    work.append(Dispatch(backward, (x, before, inverses, y), groups, (count,), grid_stride=True))


def _make_group_inverse(
    device: ArrayDevice, prime: Prime, x: DeviceArray, y: DeviceArray, count: int
) -> Dispatch:
    """The dispatch that writes the inverses of x, elements of one integer, to y."""
    limits, packed = device.info.limits, PACKED_ELEMENTS[family(prime)]
    vectors = count // packed if can_pack([x, y]) else 0
    items = vectors + (count - vectors * packed)
    size = next((each for each in GROUP_SIZES if items <= each * VECTORS), GROUP_SIZES[-1])
    return Dispatch(
        group_inverse_kernel(prime),
        (x, y),
        count,
        (vectors,),
        groups=min(-(-items // (size * VECTORS)), limits.max_work_group_count[0]),
        work_group=size,
    )


# --- on the host ---


def _fold_on_host(
    combine: Callable[[Prime, Words, Words], Words],
    prime: Prime,
    x: ElementData,
    rows: int,
    columns: int,
) -> Words:
    table = np.asarray(x).reshape(rows, columns, *prime.element_shape)
    return fold_rows(functools.partial(combine, prime), _join_columns, table)[:, 0].copy()


def _join_columns(parts: Sequence[Words]) -> Words:
    return np.concatenate(parts, axis=1)


def fold_rows(
    combine: Callable[[Data, Data], Data], join: Callable[[Sequence[Data]], Data], x: Data
) -> Data:
    """Combine the second half of each row with its first half until one column is left.

    The rows of x are along its axis 1, along which `join` joins arrays.
    """
    while (half := x.shape[1] // 2) > 0:
        combined = combine(x[:, :half], x[:, half : 2 * half])
        x = join([combined, x[:, 2 * half :]]) if x.shape[1] % 2 else combined
    return x


def _combine_prefixes_on_host(
    combine: Callable[[Prime, Words, Words], Words],
    prime: Prime,
    x: ElementData,
    rows: int,
    columns: int,
) -> Words:
    table = np.asarray(x).reshape(rows, columns, *prime.element_shape)
    combine_two = functools.partial(combine, prime)
    found = combine_prefixes_pairwise(combine_two, interleave_columns, table)
    return np.array(found).reshape(x.shape)


def combine_prefixes_pairwise(
    combine: Callable[[Data, Data], Data], join: Callable[[Data, Data, Data], Data], x: Data
) -> Data:
    """The sums or products of all prefixes of the rows of x, along its axis 1: two for each
    element, in 2 log2(columns) calls of `combine`, which adds or multiplies.

    `join` makes rows of their first element, the elements at odd indices, and the remaining ones.
    """
    columns = x.shape[1]
    if columns < 2:
        return x
    # The prefixes that end at odd indices are the prefixes of the results of pairs. Each of them
    # and the next element give the prefix that ends at the even index behind it.
    odd = combine_prefixes_pairwise(combine, join, combine(x[:, :-1:2], x[:, 1::2]))
    return join(x[:, :1], odd, combine(odd[:, : (columns - 1) // 2], x[:, 2::2]))


def interleave_columns(first: Words, odd: Words, even: Words) -> Words:
    """Rows of their first element, those at odd indices and those at even indices from 2 on."""
    made = np.empty((len(odd), 1 + odd.shape[1] + even.shape[1], *odd.shape[2:]), odd.dtype)
    made[:, :1], made[:, 1::2], made[:, 2::2] = first, odd, even
    return made


def _invert_on_host(prime: Prime, x: Words) -> Words:
    """1 / x, and 0 for 0: a 0 is replaced by 1, so that the products are never 0."""
    zero = (x == 0).reshape(len(x), prime.columns).all(axis=1)
    nonzero = x.copy()
    nonzero[zero] = words.from_ints(prime, [prime.one])
    y = _invert_nonzero_on_host(prime, nonzero)
    y[zero] = 0
    return y


def _invert_nonzero_on_host(prime: Prime, x: Words) -> Words:
    """1 / a = b / (a b) and 1 / b = a / (a b): three products for two elements, recursively."""
    if len(x) <= HOST_DIRECT_INVERSES:
        # In Montgomery form the words hold a R, and those of the inverse R / a = R^2 / (a R).
        numerator = 1 if prime.form == "canonical" else prime.r2_mod_p
        ints = invert_all(words.to_ints(prime, x), prime.modulus, numerator)
        return words.from_ints(prime, ints).reshape(x.shape)
    half = len(x) // 2
    a, b, rest = x[:half], x[half : 2 * half], x[2 * half :]
    inverted = _invert_nonzero_on_host(prime, np.concatenate([mul(prime, a, b), rest]))
    both = inverted[:half]
    return np.concatenate([mul(prime, both, b), mul(prime, both, a), inverted[half:]])
