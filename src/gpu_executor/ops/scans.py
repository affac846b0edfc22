"""Sums, running products and inverses on the card, in a few passes over the elements."""

from __future__ import annotations

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.kernels.passes import scan_kernel
from gpu_executor.ops import exponents
from gpu_executor.ops.multiplying import by_doubles
from gpu_executor.primes import Prime

TOGETHER = 32
"""Elements that an invocation takes one after the other."""
FEW, FEW_ON_A_CPU = 16384, 4
"""So many are inverted each by itself, at once. 2^22 inverses in BLS12-381 Fr took an NVIDIA H200
0.509 ms with these; 0.561 with 16 together, 0.512 with 64; 0.563 with 4,096 by themselves. On
lavapipe, where nothing waits while one is inverted, a thousand took 1.37 ms; 1.54 with one by
itself or eight, 1.93 with 16, 3.81 with 128."""
CHUNK = 32


def invert(device: ArrayDevice, prime: Prime, x: DeviceArray, y: DeviceArray) -> None:
    """y = 1 / x, and 0 where x is: all but a few inverses at the price of three products each."""
    work: list[Dispatch] = []
    _invert(device, prime, x, y, work)
    device.submit(work)


def _invert(
    device: ArrayDevice, prime: Prime, x: DeviceArray, y: DeviceArray, work: list[Dispatch]
) -> None:
    count = x.nbytes // prime.element_bytes
    few = FEW_ON_A_CPU if device.info.kind == "cpu" else FEW
    if count <= few:
        exponent = exponents.on_device(device, prime.modulus - 2)
        work.append(
            Dispatch(
                element_kernel(prime, "power", f64_limbs=by_doubles(device, prime)),
                (x, exponent, y),
                count,
                (exponent.size,),
            )
        )
        return
    groups = max(-(-count // TOGETHER), few)
    before = device.empty(x.shape, x.dtype)
    products, inverses = (_elements(device, prime, groups) for _ in range(2))
    first, second = (_kernel(device, prime, name) for name in ("partial_products", "inverses"))
    work.append(Dispatch(first, (x, before, products), groups, (count,), grid_stride=True))
    _invert(device, prime, products, inverses, work)
    work.append(Dispatch(second, (x, before, inverses, y), groups, (count,), grid_stride=True))


def sum_rows(
    device: ArrayDevice, prime: Prime, x: DeviceArray, rows: int, columns: int
) -> DeviceArray:
    """The sum of each row, as one element a row."""
    work: list[Dispatch] = []
    kernel = _kernel(device, prime, "partial_sums")
    while True:
        groups = -(-columns // TOGETHER)
        sums = _elements(device, prime, rows * groups)
        work.append(Dispatch(kernel, (x, sums), rows * groups, (columns, groups), grid_stride=True))
        if groups == 1:
            device.submit(work)
            return sums
        x, columns = sums, groups


def running_products(
    device: ArrayDevice, prime: Prime, x: DeviceArray, y: DeviceArray, rows: int, columns: int
) -> None:
    """y[i] = x[0] * x[1] * ... * x[i] in every row."""
    work: list[Dispatch] = []
    _running_products(device, prime, x, y, rows, columns, work)
    device.submit(work)


def _running_products(
    device: ArrayDevice,
    prime: Prime,
    x: DeviceArray,
    y: DeviceArray,
    rows: int,
    columns: int,
    work: list[Dispatch],
) -> None:
    chunks = -(-columns // CHUNK)
    push_words = columns, CHUNK, chunks
    count = rows * chunks
    before = x  # nothing is read of it where there is one chunk
    if chunks > 1:
        products, before = (_elements(device, prime, count) for _ in range(2))
        work.append(
            Dispatch(
                _kernel(device, prime, "chunk_products"),
                (x, products),
                count,
                push_words,
                grid_stride=True,
            )
        )
        _running_products(device, prime, products, before, rows, chunks, work)
    work.append(
        Dispatch(
            _kernel(device, prime, "running_products"),
            (x, before, y),
            count,
            push_words,
            grid_stride=True,
        )
    )


def resize_rows(
    device: ArrayDevice, prime: Prime, x: DeviceArray, rows: int, old: int, new: int
) -> DeviceArray:
    """Rows of `new` elements instead of `old`: cut, or filled up with zeros."""
    y = _elements(device, prime, rows * new)
    kernel = _kernel(device, prime, "resize")
    device.submit([Dispatch(kernel, (x, y), rows * new, (new, old), grid_stride=True)])
    return y


def evaluate(device: ArrayDevice, prime: Prime, x: DeviceArray, points: DeviceArray) -> DeviceArray:
    """The polynomial with the coefficients x, the constant first, at each point."""
    count = points.nbytes // prime.element_bytes
    values = _elements(device, prime, count)
    coefficients = x.nbytes // prime.element_bytes
    kernel = _kernel(device, prime, "evaluate")
    device.submit([Dispatch(kernel, (x, points, values), count, (coefficients,), grid_stride=True)])
    return values


def _kernel(device: ArrayDevice, prime: Prime, name: str) -> Kernel:
    return scan_kernel(prime, name, f64_limbs=by_doubles(device, prime))


def _elements(device: ArrayDevice, prime: Prime, count: int) -> DeviceArray:
    return device.empty((count, *prime.element_shape), prime.column_dtype)
