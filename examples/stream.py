"""A stream: a generator without end, summed up block by block on the device.

`map` reads ahead only as far as it is told, so memory stays small however long it goes on.

python examples/stream.py
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import numpy as np

import gpu_executor as gx

BLOCK = 4_096
produced: list[int] = []


def blocks() -> Iterator[Any]:
    """0 to 4,095, then 4,096 to 8,191, and so on for ever."""
    for first in count(0, BLOCK):
        produced.append(first)
        yield np.arange(first, first + BLOCK, dtype=np.uint32)


with gx.GpuExecutor() as gpu:
    sums = gpu.map(gx.kernels.load("reduce_sum_u32"), blocks(), buffersize=4)
    for index, total in enumerate(islice(sums, 10)):
        first, last = index * BLOCK, (index + 1) * BLOCK - 1
        gauss = (first + last) * BLOCK // 2
        print(f"{first:>6,} + ... + {last:>6,} = {total:>11,}", "ok" if total == gauss else "?")

print(f"ten sums were taken, {len(produced)} blocks were produced")
