"""What needs an extra that is not installed says so in one way, with a command that installs it."""

from __future__ import annotations

import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import gpu_executor as gx
from gpu_executor.errors import MissingExtraError
from gpu_executor.groth16.witness_calculator import compute_witness
from gpu_executor.kzg.pairing import get_arkworks
from gpu_executor.kzg.setup_file import find_mainnet_setup
from gpu_executor.telemetry.exporters.scrape import read_metrics
from tests.support.pages import REPOSITORY


def serve_metrics() -> None:
    with gx.GpuExecutor("cpu") as executor:
        executor.serve_metrics()


def send_kernel() -> None:
    add = gx.kernels.load("vector_add_u32")
    kernel = gx.Kernel.from_spirv(add.spirv, name="add", reference=lambda a, b: a + b)
    pickle.dumps(kernel)


CALLS: dict[str, tuple[str, tuple[str, ...], Callable[[], object]]] = {
    "WebGPU": ("webgpu", ("wgpu",), lambda: gx.GpuExecutor("webgpu")),
    "cluster": ("ray", ("ray",), lambda: gx.cluster.RayExecutor),
    "serving metrics": ("metrics", ("prometheus_client",), serve_metrics),
    "reading metrics": (
        "metrics",
        ("prometheus_client", "prometheus_client.parser"),
        lambda: read_metrics("http://127.0.0.1:1/metrics"),
    ),
    "trusted setup": ("kzg", ("eth_account",), find_mainnet_setup),
    "pairings": ("kzg", ("py_arkworks_bls12381",), get_arkworks),
    "witnesses": ("groth16", ("wasmtime",), lambda: compute_witness("circuit.wasm", {})),
    "kernels with lambdas": ("pickle", ("cloudpickle", "ray", "ray.cloudpickle"), send_kernel),
}
"""The extra, its modules, and a call that needs them."""


@pytest.mark.parametrize("what", CALLS)
def test_a_missing_extra_is_one_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    extra, modules, call = CALLS[what]
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it raises ImportError
    with pytest.raises(MissingExtraError) as raised:
        call()
    error = raised.value
    assert isinstance(error, gx.GpuError) and isinstance(error, ImportError)
    assert error.extra == extra
    assert f"pip install 'gpu-executor[{extra}]'" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.extra) == (MissingExtraError, str(error), extra)


def test_the_extras_that_errors_name_exist() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {extra for extra, _, _ in CALLS.values()} <= project["optional-dependencies"].keys()


def test_no_message_needs_a_checkout() -> None:
    """`pip install '.[webgpu]'` works in the folder of the sources only."""
    package = Path(gx.__file__).parent
    named = [path.name for path in package.rglob("*.py") if "'.[" in path.read_text()]
    assert named == []
