"""How many invocations a workgroup has, and which constants may change that."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import constant_of, spec_id_of
from gpu_executor.spirv.module import BUILT_IN, Module

_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38  # Spec, "Execution Mode"
_WORKGROUP_SIZE = 25  # Spec, "BuiltIn"


@dataclass(frozen=True, slots=True)
class LocalSize:
    """Invocations per workgroup, and which of the three a specialization constant sets."""

    size: tuple[int, int, int]
    spec_ids: tuple[int | None, int | None, int | None]


def local_size(module: Module, entry: int) -> LocalSize:
    """A WorkgroupSize constant wins over either execution mode (Spec, BuiltIn WorkgroupSize)."""
    for (target, _), decorations in module.decorations.items():
        if decorations.get(BUILT_IN) == _WORKGROUP_SIZE:
            name, operands = module.definition(target)
            if not name.endswith("Composite"):
                raise SpirvError(f"the WorkgroupSize %{target} is {name}: give three constants")
            return _local_size_of_ids(module, operands[2:])
    for operands in module.all("OpExecutionModeId"):
        if operands[:2] == (entry, _LOCAL_SIZE_ID):
            return _local_size_of_ids(module, operands[2:])
    for operands in module.all("OpExecutionMode"):
        if operands[:2] == (entry, _LOCAL_SIZE):
            return _checked_local_size(operands[2:], (None,) * len(operands[2:]))
    raise SpirvError("found no local size: declare one (layout(local_size_x = 64) in;)")


def _local_size_of_ids(module: Module, ids: tuple[int, ...]) -> LocalSize:
    sizes = []
    for target in ids:
        constant = constant_of(module, target)
        if constant is None or constant.kind not in ("int", "uint"):
            raise SpirvError(
                f"the local size is given by {module.definition(target)[0]}: "
                "it must be a plain integer or a specialization constant"
            )
        sizes.append(int(constant.value))
    return _checked_local_size(tuple(sizes), tuple(spec_id_of(module, target) for target in ids))


def _checked_local_size(size: tuple[int, ...], spec_ids: tuple[int | None, ...]) -> LocalSize:
    if len(size) != 3 or min(size) < 1:
        raise SpirvError(f"found the local size {size}: three dimensions of at least 1 are needed")
    return LocalSize((size[0], size[1], size[2]), (spec_ids[0], spec_ids[1], spec_ids[2]))
