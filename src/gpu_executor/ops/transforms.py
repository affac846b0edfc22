"""Number-theoretic transforms (NTT) of rows of 2^k elements, on the device and on the host.

On the device a transform is a pass for every eight levels of butterflies or so; each pass keeps
tiles of columns in shared memory (`glsl/transform.glsl`). The tiles of the pass with the smallest
distances are contiguous in memory: the last one, or the first one from bit-reversed order.

Between two passes every element is multiplied by a twiddle, a power w^e of a root of unity. Small
transforms look w^e up in one table; large ones multiply two factors from small tables. The tables
are cached on the device. Primes of 250 to 255 bits need no twiddles, up to 2^24 elements:
`ops/block_transforms.py`.

A transform of n elements takes (n / 2) log2 n products and n log2 n additions or subtractions in
its butterflies, and with twiddles one or two products per element between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.element_references import add, mul, sub
from gpu_executor.kernels.passes import (
    count_roots,
    count_shared_roots,
    encode_twiddles,
    get_log_radix,
    get_root_shift,
    is_in_rounds,
    lazy_bytes,
    pass_kernel,
    powers_kernel,
)
from gpu_executor.ops import transform_splits
from gpu_executor.ops.block_transforms import BlockPass, BlockPasses, has_block_roots
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    count_elements,
    get_shape,
)
from gpu_executor.ops.operation import operation
from gpu_executor.ops.transform_splits import LONG_FROM, Split, split_levels, split_long
from gpu_executor.primes import Prime, words
from gpu_executor.primes.number_theory import compute_powers

Order = Literal["natural", "reversed"]
"""Of the elements in a row: by index, or by the index with its bits reversed."""

DIRECT_LEVELS = 16
"""Up to this many levels one table holds every power: 2 MB of 32-byte elements."""


@dataclass(frozen=True)
class TransformOptions:
    """Direction, orders and coset of a transform."""

    inverse: bool = False
    order_in: Order = "natural"
    order_out: Order = "natural"
    coset: int | None = None
    """A factor g: evaluate at g w^i instead of w^i. Element i is multiplied by g^i before a forward
    transform, and by g^-i after an inverse one."""

    @cached_property
    def decimation_in_time(self) -> bool:
        """Whether the passes go from bit-reversed to natural order; else from natural order to
        bit-reversed order (decimation in frequency)."""
        return self.order_in == "reversed"


def transform(
    prime: Prime, x: ElementData, options: TransformOptions, length: int | None = None
) -> ElementData:
    """Transform every row, which is the last axis. With `length`, zeros follow the elements of
    each row up to that length. Such rows are in natural order, and there is no coset."""
    shape = get_shape(prime, x)
    rows = shape if length is None else (*shape[:-1], length)
    log_n = check_length(prime, rows)
    assert rows == shape or (options.order_in == "natural" and options.coset is None)
    return _transform(prime, x, log_n, options)


@operation
def _transform(prime: Prime, x: ElementData, log_n: int, options: TransformOptions) -> ElementData:
    *leading, length = get_shape(prime, x)
    n = 1 << log_n
    flat = np.asarray(x).reshape(-1, length, *prime.element_shape)
    if n != length:
        padded = np.zeros((len(flat), n, *prime.element_shape), x.dtype)
        padded[:, :length] = flat
        flat = padded
    return _transform_on_host(prime, flat, options).reshape(*leading, n, *prime.element_shape)


def extend(prime: Prime, x: ElementData, blowup: int, order_in: Order) -> ElementData:
    """The values of polynomials at `blowup` times as many points as they have coefficients, in
    natural order. The coefficients along the last axis are in the order of `get_extension_order`.

    The first log2(blowup) levels of butterflies meet the zeros that would follow the coefficients:
    in natural order behind all of them, in bit-reversed order behind each of them. These levels
    only copy coefficients. So they are skipped: the first pass reads each one `blowup` times.
    """
    *leading, length = get_shape(prime, x)
    rows = (*leading, length * blowup)
    log_n = check_length(prime, rows)
    if length == 1:  # all levels would be skipped, and no pass would be left
        return transform(prime, x, TransformOptions(), rows[-1])
    return _extend(prime, x, log_n, order_in)


@operation
def _extend(prime: Prime, x: ElementData, log_n: int, order_in: Order) -> ElementData:
    *_, length = get_shape(prime, x)
    flat = np.asarray(x).reshape(-1, length, *prime.element_shape)
    natural = flat[:, make_bit_reversal(length)] if order_in == "reversed" else flat
    return transform(prime, natural.reshape(x.shape), TransformOptions(), 1 << log_n)


@_extend.by_steps
def _extend_by_steps(prime: Prime, x: DeviceArray, log_n: int, order_in: Order) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    *leading, length = get_shape(prime, x)
    y = device.empty((*leading, 1 << log_n, *prime.element_shape), x.dtype)
    passes = _get_passes(
        device,
        prime,
        log_n,
        inverse=False,
        decimation_in_time=order_in == "reversed",
        reverses=order_in == "natural",
        log_repeats=log_n - (length.bit_length() - 1),
    )
    reverse = order_in == "natural"
    device.submit(list(_make_dispatches(passes, x, y, count_elements(prime, y), reverse=reverse)))
    return y


def get_extension_order(prime: Prime, x: ElementData, length: int) -> Order:
    """The order of coefficients from which `extend` computes `length` values of a polynomial: the
    levels that only copy must come first."""
    if isinstance(x, DeviceArray):
        info = x.storage.device.info
        if has_block_roots(prime, info, length.bit_length() - 1):
            return "natural"
    return "reversed"


def check_length(prime: Prime, shape: tuple[int, ...]) -> int:
    """log2 of the length of the rows, for which the prime has roots of unity."""
    length = shape[-1] if shape else 0
    if length < 1 or length & length - 1:
        raise ArgumentShapeError(
            f"{prime.name}: a transform takes rows of 2^k elements, not of {length}; the shape is "
            f"{shape}"
        )
    log_n, most = length.bit_length() - 1, prime.two_adicity
    if log_n > most:
        raise ArgumentShapeError(
            f"{prime.name}: a transform has at most 2^{most} elements, the largest power-of-two "
            f"order of a root of unity, not 2^{log_n}; the shape is {shape}"
        )
    return log_n


# --- on the device ---


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all elements: its kernels, its tables and its push words."""

    get_kernel: Callable[..., Kernel]
    """The kernel with the given `grid_stride`, `reverses` and `pads` of `pass_kernel`."""
    roots: DeviceArray
    low: DeviceArray
    high: DeviceArray
    push_words: tuple[int, int, int]
    """log_m, low_bits, log_n; the own length of a row is appended."""
    levels: int
    columns: int
    """log2 of the columns of a tile."""
    log_radix: int
    """log2 of the elements of a tile that an invocation has."""

    def make_dispatch(
        self,
        x: DeviceArray,
        y: DeviceArray,
        count: int,
        max_groups: int,
        *,
        reverse: bool,
        own_length: int = 0,
    ) -> Dispatch:
        """The dispatch from x to y. Unless `own_length` is 0, rows of x have only so many elements,
        which zeros follow."""
        log_tile = self.levels + self.columns
        tiles = count >> log_tile
        kernel = self.get_kernel(
            grid_stride=tiles > max_groups, reverses=reverse, pads=own_length > 0
        )
        return Dispatch(
            kernel,
            (x, self.roots, self.low, self.high, y),
            count,
            (*self.push_words, own_length),
            groups=min(tiles, max_groups),
            work_group=1 << log_tile >> self.log_radix,
        )


@dataclass(frozen=True)
class PowerTable:
    """The powers of a number, in two tables: g^e = low[e mod 2^low_bits] * high[e >> low_bits]."""

    low: DeviceArray
    high: DeviceArray
    low_bits: int


class TransformPasses:
    """The passes of a transform of 2^log_n elements, with their tables, for one direction and one
    order of the input. `reverses` says that they will change the order of the results: long
    transforms are split in another way then. With `log_repeats`, each element of the input stands
    for 2^log_repeats equal ones, the results of the first log_repeats levels."""

    def __init__(
        self,
        device: ArrayDevice,
        prime: Prime,
        log_n: int,
        *,
        inverse: bool,
        decimation_in_time: bool,
        reverses: bool = False,
        log_repeats: int = 0,
    ) -> None:
        self.device, self.prime, self.log_n = device, prime, log_n
        self._inverse, self._decimation_in_time = inverse, decimation_in_time
        self._reverses, self._log_repeats = reverses, log_repeats
        self._split = self._choose_split()
        passes = list(self._make_passes())
        self.passes = passes[::-1] if decimation_in_time else passes

    def _root(self, log_order: int) -> int:
        root = self.prime.root_of_unity(log_order)
        return pow(root, -1, self.prime.modulus) if self._inverse else root

    def _make_passes(self) -> Iterator[Pass]:
        """From natural to bit-reversed order. The first pass multiplies by `scale`, 1 / n."""
        scale = pow(1 << self.log_n, -1, self.prime.modulus) if self._inverse else 1
        log_m, log_last = self.log_n, self._log_repeats
        for levels in self._split.levels:
            log_r = log_m - levels
            columns = self._choose_columns(levels, log_r)
            roots = self._put_powers(self._root(levels), count_roots(self.prime, levels))
            twiddles = log_r > 0 or scale != 1
            direct = log_m <= DIRECT_LEVELS or log_r == 0
            low_bits = log_m if direct else (log_m + 1) // 2
            low = high = roots  # bound in place of tables that the pass does not read
            if twiddles:
                # The last pass has no twiddles. It reads only the scale, at exponent 0.
                root = self._root(log_m) if log_r else 1
                count = 1 << low_bits if log_r else 1
                low = self._put_low_powers(root, count, scale, levels, direct=direct)
            if twiddles and not direct:
                step = pow(root, 1 << low_bits, self.prime.modulus)
                high = self._put_powers(step, 1 << (log_m - low_bits))
            get_kernel = partial(
                pass_kernel,
                self.prime,
                decimation_in_time=self._decimation_in_time,
                levels=levels,
                columns=columns,
                twiddles=twiddles,
                direct=direct,
                by_block=log_r == 0,
                root_shift=get_root_shift(self.prime, inverse=self._inverse),
                scales=scale != 1,
                log_repeats=log_last if log_r == log_last else 0,
            )
            yield Pass(
                cache(get_kernel),
                roots,
                low,
                high,
                push_words=(log_m, low_bits, self.log_n),
                levels=levels,
                columns=columns,
                log_radix=get_log_radix(self.prime, levels),
            )
            log_m, scale = log_r, 1

    def _choose_split(self) -> Split:
        """The split for the device, in passes whose tiles it can hold."""
        if is_long(self.prime, self.device.info, self.log_n):
            split = split_long(
                self.log_n,
                self.prime.element_bytes,
                from_reversed=self._decimation_in_time,
                reverses=self._reverses,
                log_repeats=self._log_repeats,
            )
            if all(self._fits(levels, 0) for levels in split.levels):
                return split
        most = transform_splits.LEVELS_PER_PASS
        while most > 1 and not self._fits(most, 0):
            most -= 1
        return Split(split_levels(self.log_n - self._log_repeats, most), transform_splits.ROW_BYTES)

    def _choose_columns(self, levels: int, log_r: int) -> int:
        """log2 of a tile's columns: those that the split says, if they exist and fit shared
        memory."""
        split = self._split
        if log_r == 0 and split.log_contiguous_tile is not None:
            return split.log_contiguous_tile - levels
        wanted = max(split.row_bytes // self.prime.element_bytes, 1).bit_length() - 1
        rows_are_short = log_r <= self._log_repeats
        columns = min(wanted, self.log_n - levels if rows_are_short else log_r)
        while columns and not self._fits(levels, columns):
            columns -= 1
        return columns

    def _fits(self, levels: int, columns: int) -> bool:
        """Whether a work-group can hold such a tile with its gaps and its roots."""
        limits = self.device.info.limits
        tile, log_radix = 1 << levels + columns, get_log_radix(self.prime, levels)
        gaps = (tile >> 4) + (1 << columns) if is_in_rounds(self.prime) else 0
        numbers = tile + gaps + count_shared_roots(self.prime, levels)
        return (
            numbers * lazy_bytes(self.prime) <= limits.max_shared_memory
            and tile >> log_radix <= limits.max_work_group_invocations
        )

    def _put_low_powers(
        self, base: int, count: int, scale: int, levels: int, *, direct: bool
    ) -> DeviceArray:
        """The powers of `base` times `scale`, in the order in which the family's kernel reads them
        (`glsl/transform_levels.glsl`, multiply_by_twiddles of `glsl/transform_rounds.glsl`)."""
        if not is_in_rounds(self.prime):
            return self._put_powers(base, count, scale)
        if not direct:
            powers = compute_powers(self.prime.modulus, base, count)
            return self.device.put(encode_twiddles(self.prime, [*powers, scale]))
        table = encode_twiddles(self.prime, compute_powers(self.prime.modulus, base, count, scale))
        columns = np.arange(max(count >> levels, 1))
        exponents = np.outer(make_bit_reversal(1 << levels), columns) & count - 1
        return self.device.put(table[exponents.ravel()])

    def _put_powers(self, base: int, count: int, scale: int = 1) -> DeviceArray:
        return _put_powers(self.device, self.prime, base, max(count, 1), scale)


def is_long(prime: Prime, info: DeviceInfo, log_n: int) -> bool:
    """Whether a transform has the splits of long ones (`ops/transform_splits.py`)."""
    return log_n >= LONG_FROM and is_in_rounds(prime) and info.kind != "cpu"


def _make_dispatches(
    passes: Sequence[Pass | BlockPass],
    x: DeviceArray,
    y: DeviceArray,
    count: int,
    *,
    reverse: bool,
    own_length: int = 0,
) -> Iterator[Dispatch]:
    """Dispatches from x to y, which may be one array unless `reverse` changes the order. Unless
    `own_length` is 0, rows of x have only so many elements, which zeros follow."""
    device: ArrayDevice = y.storage.device
    max_groups = device.info.limits.max_work_group_count[0]
    *others, last = passes
    between = y
    if others and reverse:
        between = device.empty(y.shape, y.dtype)
    for each in others:
        yield each.make_dispatch(
            x, between, count, max_groups, reverse=False, own_length=own_length
        )
        x, own_length = between, 0
    yield last.make_dispatch(x, y, count, max_groups, reverse=reverse, own_length=own_length)


def _get_passes(
    device: ArrayDevice,
    prime: Prime,
    log_n: int,
    *,
    inverse: bool,
    decimation_in_time: bool,
    reverses: bool,
    log_repeats: int = 0,
) -> Sequence[Pass | BlockPass]:
    """The cached passes of a transform, which are made at its first use."""
    # Blocks are split in the same way for both orders, and so are short transforms.
    has_blocks = has_block_roots(prime, device.info, log_n)
    reverses = reverses and not has_blocks and is_long(prime, device.info, log_n)

    def make() -> TransformPasses | BlockPasses:
        way = {"inverse": inverse, "decimation_in_time": decimation_in_time}
        if has_blocks:
            return BlockPasses(device, prime, log_n, log_repeats=log_repeats, **way)
        return TransformPasses(
            device, prime, log_n, reverses=reverses, log_repeats=log_repeats, **way
        )

    key = "transform", prime, log_n, inverse, decimation_in_time, reverses, log_repeats
    made = device.cache(key, make)
    return made.passes


@_transform.by_steps
def _transform_by_steps(
    prime: Prime, x: DeviceArray, log_n: int, options: TransformOptions
) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    *leading, own_length = get_shape(prime, x)
    y = device.empty((*leading, 1 << log_n, *prime.element_shape), x.dtype)
    count = count_elements(prime, y)
    inverse, decimation_in_time, coset = options.inverse, options.decimation_in_time, options.coset
    order_of_passes: Order = "natural" if decimation_in_time else "reversed"
    reverse = order_of_passes != options.order_out
    passes = _get_passes(
        device,
        prime,
        log_n,
        inverse=inverse,
        decimation_in_time=decimation_in_time,
        reverses=reverse,
    )
    work: list[Dispatch] = []
    if coset is not None and not inverse:
        shifted = device.empty(x.shape, x.dtype)
        work.append(_multiply_by_powers(prime, x, shifted, log_n, coset, options.order_in))
        x = shifted
    work += _make_dispatches(
        passes,
        x,
        y,
        count,
        reverse=reverse,
        own_length=own_length if own_length < 1 << log_n else 0,
    )
    if coset is not None and inverse:
        base = pow(coset, -1, prime.modulus)
        work.append(_multiply_by_powers(prime, y, y, log_n, base, options.order_out))
    device.submit(work)
    return y


def _multiply_by_powers(
    prime: Prime, x: DeviceArray, y: DeviceArray, log_n: int, base: int, order: Order
) -> Dispatch:
    """The dispatch of y[i] = x[i] * base^i in every row, for i in the given order."""
    device: ArrayDevice = x.storage.device
    key = ("powers", prime, log_n, base)
    table = device.cache(key, lambda: _make_power_table(device, prime, log_n, base))
    count = count_elements(prime, x)
    push_words = log_n, table.low_bits, int(order == "reversed")
    arrays = x, table.low, table.high, y
    return Dispatch(powers_kernel(prime), arrays, count, push_words, grid_stride=True)


def _make_power_table(device: ArrayDevice, prime: Prime, log_n: int, base: int) -> PowerTable:
    low_bits = (log_n + 1) // 2
    step = pow(base, 1 << low_bits, prime.modulus)
    low = _put_powers(device, prime, base, 1 << low_bits)
    high = _put_powers(device, prime, step, 1 << (log_n - low_bits))
    return PowerTable(low, high, low_bits)


def _put_powers(
    device: ArrayDevice, prime: Prime, base: int, count: int, scale: int = 1
) -> DeviceArray:
    return device.put(encode_twiddles(prime, compute_powers(prime.modulus, base, count, scale)))


# --- on the host ---


def _transform_on_host(prime: Prime, x: Words, options: TransformOptions) -> Words:
    """Every row of (rows, 2^k): bit-reversed order in, one level of butterflies after the other."""
    n, p = x.shape[1], prime.modulus
    order = make_bit_reversal(n)
    root = prime.root_of_unity(n.bit_length() - 1)
    if options.order_in == "reversed":
        x = x[:, order]
    if options.inverse:
        y = _run_butterflies(prime, x[:, order], pow(root, -1, p))
        base = 1 if options.coset is None else pow(options.coset, -1, p)
        y = mul(prime, y, make_power_words(prime, base, n, scale=pow(n, -1, p)))
    else:
        if options.coset is not None:
            x = mul(prime, x, make_power_words(prime, options.coset, n))
        y = _run_butterflies(prime, x[:, order], root)
    return y[:, order] if options.order_out == "reversed" else y


def make_bit_reversal(n: int) -> npt.NDArray[np.intp]:
    """The permutation that takes 0 .. n-1, n a power of two, to their bit-reversed indices."""
    order = np.zeros(1, np.intp)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def _run_butterflies(prime: Prime, x: Words, root: int) -> Words:
    """From bit-reversed to natural order: transforms of 2, 4, 8, ... adjacent elements."""
    rows, n, *element = x.shape
    roots = make_power_words(prime, root, max(n // 2, 1))
    half = 1
    while half < n:
        pairs = x.reshape(rows, n // (2 * half), 2, half, *element)
        first = pairs[:, :, 0]
        second = mul(prime, pairs[:, :, 1], roots[:: n // (2 * half)])
        both: list[Any] = [add(prime, first, second), sub(prime, first, second)]
        x = np.stack(both, axis=2).reshape(x.shape)
        half *= 2
    return x


def make_power_words(prime: Prime, base: int, count: int, scale: int = 1) -> Words:
    """scale * base^i, i = 0 .. count - 1, in the form in which the prime computes."""
    powers = compute_powers(prime.modulus, base, count, scale)
    return words.from_ints(prime, map(prime.in_form, powers))
