"""What every driver must compute: fields, transforms, sorts and MSMs against exact integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.backend import Backend
from gpu_executor.fields import BLS12_381_FR
from gpu_executor.kzg import pairing
from tests.conftest import elements
from tests.support.kzg_setups import (
    POINTS_ALONE,
    draw_small_weights,
    evaluate_at_secret,
    make_blob,
    multiply_generator,
    write_known_setup,
)
from tests.support.pages import (
    REPOSITORY,
    find_expected_output,
    make_print,
    matches,
    parse_program,
    run_blocks,
)

Array = npt.NDArray[Any]


def check_field(backend: Backend, field: gx.Field) -> None:
    """Compare operations with integers."""
    p = field.modulus
    a, b = elements(field.prime, 60, 1), elements(field.prime, 60, 2)
    x, y = backend.to_device(field.encode(a)), backend.to_device(field.encode(b))
    both = list(zip(a, b, strict=True))
    assert (x + y).tolist() == [(i + j) % p for i, j in both]
    assert (x - y).tolist() == [(i - j) % p for i, j in both]
    assert (x * y).tolist() == [i * j % p for i, j in both]
    assert field.inverse(x).tolist() == [pow(i, -1, p) if i else 0 for i in a]
    assert field.power(y, 11).tolist() == [pow(j, 11, p) for j in b]


def check_transform(backend: Backend, field: gx.Field, size: int) -> None:
    """Compare a transform with one on the host, and transform it back."""
    values = elements(field.prime, size, 3)
    transformed = field.ntt(backend.to_device(field.encode(values)))
    assert transformed.tolist() == field.ntt(field.encode(values)).tolist()
    assert field.intt(transformed).tolist() == values


def draw_keys(dtype: str, count: int) -> Array:
    """Random keys of any bits, without NaN."""
    drawn = np.random.default_rng(5).bytes(count * np.dtype(dtype).itemsize)
    keys = np.frombuffer(drawn, dtype)
    return np.nan_to_num(keys) if keys.dtype.kind == "f" else keys


def check_sort(backend: Backend, dtype: str) -> None:
    """Compare a sort and its permutation with NumPy's."""
    keys = draw_keys(dtype, 1000)
    there = backend.to_device(keys)
    np.testing.assert_array_equal(gx.ops.sort(there).numpy(), np.sort(keys))
    np.testing.assert_array_equal(gx.ops.argsort(there).numpy(), np.argsort(keys, kind="stable"))


def check_commitment(backend: Backend, folder: Path) -> None:
    """Commit to a blob with a setup whose secret is known: few values and zeros, because the time
    of additions is no matter of the driver."""
    path = folder / "known_setup.txt"
    path.write_text(write_known_setup())
    blob = make_blob(elements(BLS12_381_FR.prime, 60, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "draw_weights", draw_small_weights)
        setup = kzg.load_trusted_setup(str(path), 0, device=backend, memory=POINTS_ALONE)
    with setup:
        found = kzg.blob_to_kzg_commitment(blob, setup)
    assert found == multiply_generator(evaluate_at_secret(blob))


def check_decoding(backend: Backend) -> None:
    """Read points from their compressed bytes, with square roots on the device."""
    curve = gx.curves.SECP256K1
    points = curve.generator * [*range(1, 20), curve.order - 1]
    found = curve.from_bytes(points.to_bytes(), device=backend)
    assert (found.to_host() == points).all()


def check_readme(opening: str) -> None:
    """Run README's program with another way to open its executor; compare what it prints."""
    text = (REPOSITORY / "README.md").read_text()
    assert "gx.GpuExecutor()" in text
    text = text.replace("gx.GpuExecutor()", opening)
    blocks = parse_program(text)
    expected, printed = find_expected_output(text, blocks), dict[int, str]()
    run_blocks(REPOSITORY / "README.md", blocks, {"print": make_print(printed)})
    assert printed.keys() == expected.keys()
    assert all(matches(value, printed[line]) for line, value in expected.items())
