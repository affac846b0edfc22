"""Every module of the package stays valid through the passes that prepare it for a device."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu_executor.kernels import build
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.spirv.dead_code import remove_dead_code
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.int64_lowering import lower_int64
from gpu_executor.spirv.naga_forms import rewrite_for_naga
from gpu_executor.spirv.product_lowering import lower_products
from gpu_executor.spirv.single_views import keep_single_views
from gpu_executor.spirv.specialization import specialize

NAMES = [source.stem for source in build.sources()]


def validate(code: bytes) -> str:
    """What spirv-val says against a module."""
    command = ["spirv-val", "--target-env", "vulkan1.2", "-"]
    done = subprocess.run(
        command, input=code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.stdout.decode()


def check_all(prepare: Callable[[str], bytes | None]) -> int:
    """Validate what `prepare` makes of each module, None for nothing, and return their number."""
    with ThreadPoolExecutor(2) as threads:
        made = {name: code for name in NAMES if (code := prepare(name)) is not None}
        said = dict(zip(made, threads.map(validate, made.values()), strict=True))
    assert not {name: text for name, text in said.items() if text}
    return len(made)


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


@pytest.mark.slow
@pytest.mark.parametrize("form", ["int64", "halves"])
def test_modules_for_naga_are_valid(form: str) -> None:
    def prepare(name: str) -> bytes | None:
        if "f64" in name or "packed" in name:  # these are not for WebGPU
            return None
        code = keep_single_views(remove_dead_code(specialize(load_spirv(name), {})))
        if form == "int64":
            return rewrite_for_naga(lower_products(code, "int64"))
        return rewrite_for_naga(lower_products(lower_int64(code), "halves"))

    assert check_all(prepare) > 160
