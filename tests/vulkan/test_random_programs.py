"""Random programs on device arrays: every step is also done by NumPy, and the contents compared.

Arrays are views of each other in both places, so a step that writes too much, too little or in the
wrong order shows up in another array. This file requires glslc.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError
from tests.support.jobs import ADD_U32

Gpu = gx.PersistentVulkanBackend
Words = npt.NDArray[np.uint32]
STEPS, MAX_ARRAYS = 700, 40
LENGTHS = (1, 2, 3, 5, 8)
MATMUL = gx.kernels.load("matmul_u32")
INCREASE = """#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; uint amount; };
layout(binding = 0) buffer A { uint a[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) a[i] += amount;
}"""


class Program:
    """Pairs of a device array and the NumPy array that must equal it."""

    def __init__(self, gpu: Gpu, seed: int) -> None:
        self._gpu, self._random = gpu, random.Random(seed)
        self._draw = np.random.default_rng(seed)
        self._increase = gx.Kernel.from_glsl(INCREASE)
        self.pairs: list[tuple[gx.DeviceArray, Words]] = []
        self.refused = 0
        self._steps: list[Callable[[], None]] = [
            self.make,
            self.take_view,
            self.transpose,
            self.reshape,
            self.assign,
            self.add,
            self.add_into,
            self.increase_in_place,
            self.increase,
            self.multiply,
            self.run_graph,
            self.fetch,
        ]

    def run(self) -> None:
        for _ in range(6):
            self.make()
        for _ in range(STEPS):
            if len(self.pairs) > MAX_ARRAYS:
                del self.pairs[self._random.randrange(len(self.pairs))]
            try:
                self._random.choice(self._steps)()
            except ArgumentShapeError:  # an overlap that is refused, or an empty array
                self.refused += 1
        for there, here in self.pairs:
            np.testing.assert_array_equal(there.numpy(), here)

    def make(self) -> None:
        shape = [self._random.choice(LENGTHS) for _ in range(self._random.randint(0, 3))]
        here = self._draw_words(shape if self._random.random() < 0.95 else [70_000])
        self._add(self._gpu.to_device(here), here.copy())

    def take_view(self) -> None:
        there, here = self._pick()
        item = tuple(self._draw_index(n) for n in here.shape[: self._random.randint(0, here.ndim)])
        self._add(there[item], here[(*item, ...)])

    def transpose(self) -> None:
        there, here = self._pick()
        self._add(there.T, here.T)

    def reshape(self) -> None:
        there, here = self._pick()
        if here.size:
            shape = self._random.choice([(-1,), (1, -1), (*here.shape, 1)])
            self._add(there.reshape(shape), here.reshape(shape))

    def assign(self) -> None:
        there, here = self._pick()
        source, same = self._pick(here.shape)
        if self._random.random() < 0.5:
            there[...] = source
            here[...] = same.copy()
        else:
            there[...] = drawn = self._draw_words(here.shape)
            here[...] = drawn

    def add(self) -> None:
        (a, x), (b, y) = self._pick_two()
        self._add(self._gpu.run(ADD_U32, a, b if self._random.random() < 0.7 else y), x + y)

    def add_into(self) -> None:
        (a, x), (b, y) = self._pick_two()
        there, here = self._pick(x.shape)
        expected = x + y
        assert self._gpu.run(ADD_U32, a, b, out=there) is there
        here[...] = expected

    def increase_in_place(self) -> None:
        there, here = self._pick()
        amount = self._random.randrange(1 << 32)
        self._gpu.run(self._increase, there, out=there, params={"amount": amount})
        here += np.uint32(amount)

    def increase(self) -> None:
        there, here = self._pick()
        amount = self._random.randrange(1 << 32)
        made = self._gpu.run(self._increase, there, params={"amount": amount})
        self._add(made, here + np.uint32(amount))

    def multiply(self) -> None:
        matrices = [pair for pair in self.pairs if pair[1].ndim == 2 and pair[1].size]
        for a, x in matrices:
            for b, y in matrices:
                if x.shape[1] == y.shape[0] and self._random.random() < 0.3:
                    self._add(self._gpu.run(MATMUL, a, b), x @ y)
                    return

    def run_graph(self) -> None:
        (a, x), (b, y) = self._pick_two()
        if not x.size:
            return
        with self._gpu.graph(a) as graph:
            total = self._gpu.run(ADD_U32, a, b)
            more = self._gpu.run(self._increase, total.T, params={"amount": 5})
        if self._random.random() < 0.5:
            drawn = self._draw_words(x.shape)
            graph(drawn)
            x[...] = drawn
        else:
            graph()
        self._add(total, x + y)
        self._add(more, (x + y).T + np.uint32(5))

    def fetch(self) -> None:
        there, here = self._pick()
        np.testing.assert_array_equal(there.numpy(), here)

    def _add(self, there: gx.DeviceArray, here: Any) -> None:
        """Add a pair; a new NumPy array must be C-contiguous, as results on a device are."""
        array = np.asarray(here)
        is_view = any(np.may_share_memory(array, each) for _, each in self.pairs)
        self.pairs.append((there, array if is_view else np.array(array, order="C")))

    def _pick(self, shape: tuple[int, ...] | None = None) -> tuple[gx.DeviceArray, Words]:
        pairs = [pair for pair in self.pairs if shape is None or pair[1].shape == shape]
        return self._random.choice(pairs)

    def _pick_two(self) -> tuple[tuple[gx.DeviceArray, Words], tuple[gx.DeviceArray, Words]]:
        first = self._pick()
        return first, self._pick(first[1].shape)

    def _draw_words(self, shape: Any) -> Words:
        drawn: Words = self._draw.integers(0, 1 << 32, shape, dtype=np.uint32)
        return drawn

    def _draw_index(self, length: int) -> int | slice:
        if length and self._random.random() < 0.3:
            return self._random.randrange(-length, length)
        start, stop = (
            self._random.choice([None, self._random.randint(-length, length)]) for _ in range(2)
        )
        return slice(start, stop, self._random.choice([1, 1, 2, 3, -1, -2]))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_program_gives_what_numpy_gives(gpu: Gpu, seed: int) -> None:
    program = Program(gpu, seed)
    with np.errstate(over="ignore"):
        program.run()
    assert program.refused < STEPS // 20
