"""Number-theoretic transforms on the card: passes over tiles, tables of roots kept between calls.

A transform of 2^k elements takes a pass for every eight levels or so. Between passes every element
is multiplied by a root: w^e is one product of two factors from small tables, or stands in one table
where that is small itself. What a pass is and how it is cut into tiles: `glsl/transform.glsl`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, repeat
from typing import Literal

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.passes import (
    encode_twiddles,
    lazy_bytes,
    pass_kernel,
    powers_kernel,
)
from gpu_executor.primes import Prime

Order = Literal["natural", "reversed"]

LEVELS_PER_PASS = 8
"""On an NVIDIA H200, BLS12-381 Fr: 2^22 in passes of 8, 7, 7 levels 1.62 ms, 6, 6, 5, 5 1.60 ms;
2^24 in 8, 8, 8 levels 7.02 ms, in 6, 6, 6, 6 7.02 ms."""
ROW_BYTES = 64
"""What a tile has of a row in one piece. The same: 2^22 took 1.62 ms with 64 bytes and 1.76 ms with
128 and tiles twice as large; 2^24 7.02 and 8.04 ms."""
DIRECT_LEVELS = 16
"""Up to so many levels the table has every power: 2 MB of 32-byte elements."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all elements."""

    kernel: Kernel
    reversing: Kernel
    """The same, with the outcome in the other order."""
    roots: DeviceArray
    low: DeviceArray
    high: DeviceArray
    push_words: tuple[int, int, int]
    """log_m, low_bits, log_n."""
    log_tile: int
    """Elements of a tile."""

    def dispatch(
        self, x: DeviceArray, y: DeviceArray, count: int, most_groups: int, *, reverse: bool
    ) -> Dispatch:
        return Dispatch(
            self.reversing if reverse else self.kernel,
            (x, self.roots, self.low, self.high, y),
            count,
            self.push_words,
            groups=min(count >> self.log_tile, most_groups),
            work_group=max(1 << self.log_tile >> 1, 1),
        )


@dataclass(frozen=True)
class Powers:
    """Powers of a number as factors: g^e = low[e mod 2^low_bits] * high[e >> low_bits]."""

    low: DeviceArray
    high: DeviceArray
    low_bits: int


class Transform:
    """Passes for transforms of 2^log_n elements; one for each direction and way through."""

    def __init__(
        self, device: ArrayDevice, prime: Prime, log_n: int, *, inverse: bool, gathers: bool
    ) -> None:
        self.device, self.prime, self.log_n = device, prime, log_n
        self._inverse, self._gathers = inverse, gathers
        passes = list(self._passes())
        self._in_order = passes[::-1] if gathers else passes

    def dispatches(
        self, x: DeviceArray, y: DeviceArray, count: int, *, reverse: bool
    ) -> Iterator[Dispatch]:
        """From x to y, which may be one array; to `reverse` the outcome's order it may not."""
        most = self.device.info.limits.max_work_group_count[0]
        *passes, last = self._in_order
        between = y
        if passes and reverse:
            between = self.device.empty(y.shape, y.dtype)
        for each in passes:
            yield each.dispatch(x, between, count, most, reverse=False)
            x = between
        yield last.dispatch(x, y, count, most, reverse=reverse)

    def _root(self, log_order: int) -> int:
        root = self.prime.root_of_unity(log_order)
        return pow(root, -1, self.prime.modulus) if self._inverse else root

    def _passes(self) -> Iterator[Pass]:
        scale = pow(1 << self.log_n, -1, self.prime.modulus) if self._inverse else 1
        log_m = self.log_n
        for levels in cut(self.log_n, self._most_levels()):
            log_r = log_m - levels
            columns = self._columns(levels, log_r)
            roots = self._table(self._root(levels), 1 << levels >> 1)
            twiddles = log_r > 0 or scale != 1
            direct = log_m <= DIRECT_LEVELS
            low_bits = log_m if direct else (log_m + 1) // 2
            low = high = roots
            if twiddles:
                # Without columns to twist there is just the scale, at exponent 0.
                root = self._root(log_m) if log_r else 1
                low = self._table(root, 1 << low_bits if log_r else 1, scale)
            if twiddles and not direct:
                step = pow(root, 1 << low_bits, self.prime.modulus)
                high = self._table(step, 1 << (log_m - low_bits))
            kernels = [
                pass_kernel(
                    self.prime,
                    decimation_in_time=self._gathers,
                    levels=levels,
                    columns=columns,
                    twiddles=twiddles,
                    direct=direct,
                    reverses=reverses,
                )
                for reverses in (False, True)
            ]
            push_words = log_m, low_bits, self.log_n
            plain, reversing = kernels
            yield Pass(plain, reversing, roots, low, high, push_words, levels + columns)
            log_m, scale = log_r, 1

    def _columns(self, levels: int, log_r: int) -> int:
        """Columns of a tile: enough for a piece of a row, no more than there are, and that fit."""
        wanted = max(ROW_BYTES // self.prime.element_bytes, 1).bit_length() - 1
        columns = min(wanted, log_r or self.log_n - levels)
        while columns and not self._fits(levels, columns):
            columns -= 1
        return columns

    def _most_levels(self) -> int:
        levels = LEVELS_PER_PASS
        while levels > 1 and not self._fits(levels, 0):
            levels -= 1
        return levels

    def _fits(self, levels: int, columns: int) -> bool:
        """Whether a work-group can have such a tile, and the roots beside it."""
        limits = self.device.info.limits
        numbers = (1 << levels + columns) + (1 << levels >> 1)
        return (
            numbers * lazy_bytes(self.prime) <= limits.max_shared_memory
            and 1 << levels + columns >> 1 <= limits.max_work_group_invocations
        )

    def _table(self, base: int, count: int, scale: int = 1) -> DeviceArray:
        values = powers(base, max(count, 1), scale, self.prime)
        return self.device.put(encode_twiddles(self.prime, values))


def powers(base: int, count: int, scale: int, prime: Prime) -> Iterator[int]:
    """scale, scale * base, scale * base^2, ..."""
    bases = repeat(base, count - 1)
    return accumulate(bases, lambda x, y: x * y % prime.modulus, initial=scale % prime.modulus)


def cut(log_n: int, most: int) -> list[int]:
    """Levels of each pass, as even as can be."""
    passes = max(-(-log_n // most), 1)
    each, more = divmod(log_n, passes)
    return [each + 1] * more + [each] * (passes - more)


@dataclass(frozen=True)
class TransformOptions:
    """What a caller wants of a transform."""

    inverse: bool = False
    order_in: Order = "natural"
    order_out: Order = "natural"
    coset: int | None = None
    """Forwards, x is multiplied by its powers first; backwards, the outcome by those of 1/coset."""

    @cached_property
    def gathers(self) -> bool:
        """Whether passes go from bit-reversed to natural order, or the other way."""
        return self.order_in == "reversed"


def transform(
    device: ArrayDevice,
    prime: Prime,
    x: DeviceArray,
    log_n: int,
    way: TransformOptions,
    y: DeviceArray,
) -> None:
    """Transform x, one or more rows of 2^log_n elements, to y, another array; the prime has roots
    of unity of that order."""
    count = x.nbytes // prime.element_bytes
    passes = device.kept(
        ("transform", prime, log_n, way.inverse, way.gathers),
        lambda: Transform(device, prime, log_n, inverse=way.inverse, gathers=way.gathers),
    )
    work: list[Dispatch] = []
    if way.coset is not None and not way.inverse:
        multiplied = device.empty(x.shape, x.dtype)
        by_powers(device, prime, work, x, multiplied, log_n, way.coset, way.order_in)
        x = multiplied
    came_out: Order = "natural" if way.gathers else "reversed"
    work += passes.dispatches(x, y, count, reverse=came_out != way.order_out)
    if way.coset is not None and way.inverse:
        inverse = pow(way.coset, -1, prime.modulus)
        by_powers(device, prime, work, y, y, log_n, inverse, way.order_out)
    device.submit(work)


def by_powers(
    device: ArrayDevice,
    prime: Prime,
    work: list[Dispatch],
    x: DeviceArray,
    y: DeviceArray,
    log_n: int,
    base: int,
    order: Order,
) -> None:
    """y[i] = x[i] * base^i in every row, i counted in the given order."""
    key = ("powers", prime, log_n, base)
    table = device.kept(key, lambda: _powers(device, prime, log_n, base))
    count = x.nbytes // prime.element_bytes
    push_words = log_n, table.low_bits, int(order == "reversed")
    arrays = x, table.low, table.high, y
    work.append(Dispatch(powers_kernel(prime), arrays, count, push_words, grid_stride=True))


def _powers(device: ArrayDevice, prime: Prime, log_n: int, base: int) -> Powers:
    low_bits = (log_n + 1) // 2
    step = pow(base, 1 << low_bits, prime.modulus)
    low = device.put(encode_twiddles(prime, powers(base, 1 << low_bits, 1, prime)))
    high = device.put(encode_twiddles(prime, powers(step, 1 << (log_n - low_bits), 1, prime)))
    return Powers(low, high, low_bits)
