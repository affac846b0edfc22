"""Kernels that only dispatches run: they are told more than the shapes of their arrays say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Constant, Kernel, Shape
from gpu_executor.kernels.constants import PER_INVOCATION
from gpu_executor.kernels.families import family_constants, family_push
from gpu_executor.kernels.modules import spirv
from gpu_executor.primes import Prime
from gpu_executor.spirv import read_interface


def dispatched_kernel(
    prime: Prime,
    kind: str,
    module: str,
    *,
    inputs: int,
    outputs: int = 1,
    constants: Mapping[int, Constant] | None = None,
    push: bytes | None = None,
) -> Kernel:
    """The kernel of a family's module for a prime, all its arrays of elements.

    `constants` and `push` replace what the family says.
    """
    code = spirv(f"{kind}_{module}")
    interface = read_interface(code)
    there = {constant.spec_id for constant in interface.constants}
    known: dict[int, Constant] = {**family_constants(prime, kind, interface), **(constants or {})}
    return Kernel.from_spirv(
        code,
        inputs=inputs,
        outputs=outputs,
        split="whole",
        dtypes=[prime.element_dtype] * (inputs + outputs),
        out_shape=_like_the_first,
        constants={spec_id: value for spec_id, value in known.items() if spec_id in there},
        push=family_push(prime, kind, interface) if push is None else push,
        push_of=_told_by_a_dispatch,
        per_invocation=PER_INVOCATION if PER_INVOCATION in there else None,
        name=f"{prime.name}_{module}",
    )


def _like_the_first(first: Shape, *_others: Shape) -> Shape:
    return first


def _told_by_a_dispatch(*_shapes: Shape) -> Sequence[int]:
    raise KernelError("such a kernel is told what to do by whoever dispatches it")
