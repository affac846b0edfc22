"""Kernels travel to other processes with their functions, also those that have no name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import MissingExtraError
from tests.support.contract_kernels import outer, scale

X = np.arange(12, dtype=np.uint32)


def make_kernel(tiles: int) -> gx.Kernel:
    """A kernel with a lambda in every place that takes a function; they refer to `tiles`."""
    return outer(
        constants={0: tiles},  # the work-group size
        grid=lambda a, b, params=None: (-(-a[0] * b[0] // tiles), 1, 1),
        out_shape=lambda a, b: (a[0], b[0]),
        reference=gx.Reference(
            lambda a, b: a[:, None] * b,
            at=lambda at, a, b: a[at // len(b)] * b[at % len(b)] * np.uint32(bool(tiles)),
        ),
    )


def test_a_kernel_with_lambdas_is_pickled() -> None:
    kernel = make_kernel(64)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        sent = pickle.loads(pickle.dumps(kernel, protocol))
        assert (sent.name, sent.arguments, sent.digest) == (
            kernel.name, kernel.arguments, kernel.digest
        )  # fmt: skip
        with gx.GpuExecutor("vulkan", check=1.0) as gpu:
            np.testing.assert_array_equal(gpu.run(sent, X, X), np.multiply.outer(X, X))
            assert gpu.stats().checked == 144


def test_a_pickled_kernel_runs_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "kernels"
    file.write_bytes(pickle.dumps([make_kernel(64), scale()]))
    script = f"""
import pathlib, pickle
import numpy as np
import gpu_executor as gx
table, scaled = pickle.loads(pathlib.Path({str(file)!r}).read_bytes())
x = np.arange(12, dtype=np.uint32)
with gx.GpuExecutor("cpu", check=1.0) as gpu:
    assert (gpu.run(table, x, x) == np.multiply.outer(x, x)).all()
    assert gpu.run(scaled, x, params={{"factor": 3}}).tolist() == (3 * x).tolist()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=400)


def test_functions_of_modules_are_pickled_by_name() -> None:
    kernel = gx.kernels.load("matmul_u32")
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert b"_ByValue" not in pickle.dumps(kernel)
    assert b"_ByValue" in pickle.dumps(make_kernel(64))


def test_without_cloudpickle_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(
        MissingExtraError, match=r"its \w+ is not a function .*pip install 'gpu-executor\[pickle\]'"
    ):
        pickle.dumps(make_kernel(64))
