"""Matrix products, by tiles."""

from __future__ import annotations

import functools

import numpy as np

from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels.modules import spirv
from gpu_executor.kernels.wgsl_texts import MATRIX_TILE, matrix_product

TYPES = {"u32": np.uint32, "f32": np.float32}
NAMES = tuple(f"matmul_{type_}" for type_ in TYPES)


@functools.cache
def matmul_kernel(type_: str) -> Kernel:
    """a @ b; of whole numbers modulo 2^32."""
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        spirv(f"matmul_{type_}"),
        inputs=2,
        outputs=1,
        split="whole",
        dtypes=[dtype] * 3,
        out_shape=_product_shape,
        push_of=_sizes,
        name=f"matmul_{type_}",
        reference=np.matmul,
        wgsl=matrix_product(dtype),
        wgsl_grid=_tiles,
    )


def _product_shape(a: Shape, b: Shape) -> tuple[int, int]:
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ArgumentShapeError(
            f"a matrix product takes (m, k) and (k, n), and got the shapes {a} and {b}"
        )
    return a[0], b[1]


def _sizes(a: Shape, b: Shape) -> tuple[int, int, int]:
    return a[0], b[1], a[1]


def _tiles(m: int, n: int, _k: int) -> tuple[int, int]:
    return -(-n // MATRIX_TILE), -(-m // MATRIX_TILE)
