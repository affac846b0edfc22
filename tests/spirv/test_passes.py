"""Every module of the package stays valid through the passes that prepare it for a device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu_executor.kernels import build
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.spirv import remove_unroll_hints
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.int64_lowering import lower_int64
from gpu_executor.spirv.specialization import specialize
from tests.support.glsl import validate_spirv

NAMES = [source.stem for source in build.sources()]
UNROLL = 1


def check_all(prepare: Callable[[str], bytes | None]) -> int:
    """Validate what `prepare` makes of each module, None for nothing, and return their number."""
    with ThreadPoolExecutor(2) as threads:
        made = {name: code for name in NAMES if (code := prepare(name)) is not None}
        said = dict(zip(made, threads.map(validate_spirv, made.values()), strict=True))
    assert not {name: text for name, text in said.items() if text}
    return len(made)


@pytest.mark.slow
def test_modules_in_pairs_of_words_are_valid() -> None:
    def prepare(name: str) -> bytes | None:
        code = specialize(load_spirv(name), {})
        assert not any(
            Op.SPEC_CONSTANT_TRUE <= opcode <= Op.SPEC_CONSTANT_OP
            for opcode, _ in ModuleEditor(code).declarations
        )
        lowered = code if "f64" in name else lower_int64(code)
        return None if lowered is code else lowered

    assert check_all(prepare) > 80


def list_loop_controls(code: bytes) -> list[int]:
    return [
        operands[2] for opcode, operands in ModuleEditor(code).functions if opcode == Op.LOOP_MERGE
    ]


@pytest.mark.parametrize("name", ["wide_mul", "curve2_serial_accumulate", "block_dif_pass"])
def test_a_module_without_hints_to_unroll_is_valid_and_differs_in_nothing_else(name: str) -> None:
    code = load_spirv(name)
    changed = remove_unroll_hints(code)
    controls = list_loop_controls(code)
    assert UNROLL in controls
    assert list_loop_controls(changed) == [each & ~UNROLL for each in controls]
    assert len(code) == len(changed)
    differing = [n for n in range(0, len(code), 4) if code[n : n + 4] != changed[n : n + 4]]
    assert len(differing) == controls.count(UNROLL)
    assert not validate_spirv(changed)
