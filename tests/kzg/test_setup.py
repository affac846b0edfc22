"""Loading trusted setups: what is accepted, what is refused, and the files on disk."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from pathlib import Path
from typing import Any

import ckzg
import pytest
from py_arkworks_bls12381 import G2Point, Scalar

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.errors import (
    ClosedError,
    ForkedError,
    KzgArgumentError,
    KzgDataError,
    MissingExtraError,
    NotSupportedError,
)
from gpu_executor.kzg import pairing, setup_file
from gpu_executor.kzg.setup import plan_setup
from tests.support.kzg_setups import (
    GENERATOR,
    OUTSIDE,
    POINTS_ALONE,
    SetupPair,
    draw_small_weights,
    list_edge_blobs,
    multiply_generator,
)

Gpu = gx.PersistentVulkanBackend
MAINNET = str(setup_file.find_mainnet_setup())


@pytest.fixture(scope="module")
def lines(known_path: Path) -> list[str]:
    return known_path.read_text().split()


def load(lines: list[str], gpu: Gpu) -> kzg.TrustedSetup:
    return kzg.load_trusted_setup(io.StringIO("\n".join(lines)), device=gpu, memory=POINTS_ALONE)


def change(lines: list[str], line: int, text: str) -> list[str]:
    return [*lines[:line], text, *lines[line + 1 :]]


# --- text ---


def test_paths_and_file_objects_give_the_same_setup(
    known: SetupPair, known_path: Path, gpu: Gpu
) -> None:
    for source in (
        known_path,
        io.BytesIO(known_path.read_bytes()),
        io.StringIO(known_path.read_text()),
    ):
        with kzg.load_trusted_setup(source, device=gpu) as setup:
            assert setup.digest == known.own.digest
            assert (setup.lagrange == known.own.lagrange).all()


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, "4095", "must begin with 4096 and 65"),
        (1, "64", "must begin with 4096 and 65"),
        (2, "", "has 8,256 points; it must have 8,257"),
        (5, "00", "point 3 has 2 characters; it must have 96"),
        (5, "zz" * 48, "no hexadecimal digits"),
        (7, OUTSIDE.hex(), r"Lagrange points\[5\] is not a compressed point"),
        (7, bytes(48).hex(), r"Lagrange points\[5\] is not a compressed point"),
        (4098 + 9, bytes(96).hex(), "power 9 of G2"),
        (4163 + 11, OUTSIDE.hex(), r"powers of G1\[11\] is not a compressed point"),
        (4163, multiply_generator(2).hex(), "must be the generators"),
        (4098, (G2Point() * Scalar(2)).to_compressed_bytes().hex(), "must be the generators"),
        (4099, G2Point().to_compressed_bytes().hex(), "points of G2 are not the powers"),
        (4162, G2Point().to_compressed_bytes().hex(), "points of G2 are not the powers"),
        (4164, GENERATOR.hex(), "points of G2 are not the powers"),
    ],
)
def test_a_setup_with_an_error_is_refused(
    lines: list[str], gpu: Gpu, line: int, text: str, message: str
) -> None:
    with pytest.raises(KzgDataError, match=message):
        load(change(lines, line, text), gpu)


@pytest.mark.slow
def test_lagrange_points_in_bit_reversed_order_are_refused(
    lines: list[str], gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ckzg accepts them, and computes other commitments."""
    monkeypatch.setattr(pairing, "draw_weights", draw_small_weights)
    order = [int(f"{i:012b}"[::-1], 2) for i in range(4096)]
    wrong = [*lines[:2], *[lines[2 + i] for i in order], *lines[2 + 4096 :]]
    with pytest.raises(KzgDataError, match="they must be in natural order"):
        load(wrong, gpu)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/nonexistent", 0], RuntimeError),
        (["/", 0], RuntimeError),
        ([MAINNET, 16], RuntimeError),
        ([MAINNET, -1], RuntimeError),
        ([MAINNET, "1"], ValueError),
        ([MAINNET.encode(), 0], ValueError),
        ([5, 0], ValueError),
    ],
)
def test_what_cannot_be_loaded_raises_the_errors_of_ckzg(
    gpu: Gpu, arguments: list[Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        ckzg.load_trusted_setup(*arguments)
    with pytest.raises(expected) as found:
        kzg.load_trusted_setup(*arguments, device=gpu)
    assert isinstance(found.value, gx.GpuError)


def test_the_device_must_have_device_arrays(known_path: Path) -> None:
    for name in ("device", "gpu"):
        with pytest.raises(KzgArgumentError, match=f"^{name}= must be an executor or a backend"):
            kzg.load_trusted_setup(known_path, **{name: "0"})  # type: ignore[arg-type]
    with gx.CpuBackend() as cpu, pytest.raises(NotSupportedError, match="supported by: vulkan"):
        kzg.load_trusted_setup(known_path, device=cpu)


def test_gpu_is_another_name_of_device(known_path: Path, gpu: Gpu) -> None:
    with kzg.load_trusted_setup(known_path, gpu=gpu, memory=POINTS_ALONE) as setup:
        assert setup.gpu is gpu
    with pytest.raises(KzgArgumentError, match="device= and gpu= are two names of one argument"):
        kzg.load_trusted_setup(known_path, device=gpu, gpu=gpu)


def test_packages_that_are_missing_are_named(
    known_path: Path, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "eth_account", None)
    with pytest.raises(MissingExtraError, match=r"eth-account, which is not installed: pip"):
        kzg.load_trusted_setup(device=gpu)
    monkeypatch.setitem(sys.modules, "py_arkworks_bls12381", None)
    with pytest.raises(MissingExtraError, match=r"py-arkworks-bls12381, which is not inst"):
        kzg.load_trusted_setup(known_path, device=gpu)


# --- files on disk ---


def test_checked_points_are_kept_on_disk_and_a_broken_file_is_replaced(
    known: SetupPair, known_path: Path, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`known` was loaded while a broken file was there."""
    # From the file nothing is decoded or checked again.
    monkeypatch.setattr(kzg.TrustedSetup, "_decode", None)
    with kzg.load_trusted_setup(known_path, device=gpu) as setup:
        assert (setup.lagrange == known.own.lagrange).all()
        assert (setup.powers == known.own.powers).all()


def test_broken_files_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    digest, words = "ab" * 32, bytes(range(100))
    assert setup_file.read_points(tmp_path, "setup", digest, 100) is None
    setup_file.write_points(tmp_path, "setup", digest, words)
    assert setup_file.read_points(tmp_path, "setup", digest, 100) == words
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    assert setup_file.read_points(tmp_path, "setup", digest, 101) is None  # of another size
    assert setup_file.read_points(tmp_path, "setup", digest, 99) is None
    assert "it has more than 139 bytes" in caplog.text
    other = "ab" * 8 + "cd" * 24  # of another setup
    assert setup_file.read_points(tmp_path, "setup", other, 100) is None
    for index in (0, 20, 50, len(content) - 1):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        assert setup_file.read_points(tmp_path, "setup", digest, 100) is None
    assert caplog.text.count("it will be replaced") == 6
    path.unlink()
    path.mkdir()
    assert setup_file.read_points(tmp_path, "setup", digest, 100) is None
    setup_file.write_points(tmp_path, "setup", digest, words)
    assert "were not stored" in caplog.text


# --- tables of multiples ---


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_all_tables_together_fit_the_memory(gpu: Gpu, kind: Any) -> None:
    info = dataclasses.replace(gpu.device, kind=kind)
    before = 0
    for memory in (POINTS_ALONE, POINTS_ALONE + 1, 2 * POINTS_ALONE, 5_000_000, 1 << 26, 1 << 30):
        commitments, cells = plan_setup(info, memory)
        taken = 96 * (4096 * commitments.tables + 8192 * cells.tables)
        assert before <= taken <= memory
        before = taken
    assert before > 20_000_000  # a table for each window
    assert (commitments.table_windows, cells.table_windows) == (1, 1)


def test_files_of_another_version_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of the package may share a folder."""
    digest, words = "ab" * 32, bytes(100)
    setup_file.write_points(tmp_path, "setup", digest, words)
    monkeypatch.setattr(setup_file, "FILE_VERSION", setup_file.FILE_VERSION + 1)
    assert setup_file.read_points(tmp_path, "setup", digest, 100) is None
    setup_file.write_points(tmp_path, "setup", digest, words)
    assert len(list(tmp_path.iterdir())) == 2


# --- lifetime ---


def test_a_closed_setup_says_so_and_leaves_the_callers_executor_open(
    known_path: Path, gpu: Gpu
) -> None:
    setup = kzg.load_trusted_setup(known_path, device=gpu)
    setup.close()
    setup.close()
    with pytest.raises(ClosedError, match="load_trusted_setup loads another one"):
        kzg.compute_cells(list_edge_blobs()["zero"], setup)
    assert "closed" in repr(setup)
    assert gpu.to_device(gx.fields.BLS12_381_FR.encode([3])).tolist() == [3]


def test_without_gpu_a_setup_opens_an_executor_and_closes_it(known_path: Path) -> None:
    with kzg.load_trusted_setup(str(known_path), 0) as setup:
        blob = list_edge_blobs()["constant"]
        assert kzg.compute_cells(blob, setup)[5] == blob[:2048]
        executor = setup.gpu
    with pytest.raises(ClosedError):
        executor.to_device([1])


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (POINTS_ALONE - 1, "memory=1,179,647: the smallest tables .* take 1,179,648 bytes"),
        (-1, "memory=-1: the smallest tables"),
        ("1 GiB", "memory must be a whole number of bytes, not a str"),
        (1e9, "memory must be a whole number of bytes"),
        (True, "memory must be a whole number of bytes"),
    ],
)
def test_memory_is_a_number_of_bytes_for_every_table(
    known_path: Path, gpu: Gpu, memory: Any, message: str
) -> None:
    with pytest.raises(KzgArgumentError, match=message):
        kzg.load_trusted_setup(known_path, device=gpu, memory=memory)


def test_a_child_process_cannot_use_the_setup_of_its_parent(known: SetupPair) -> None:
    setup, blob = known.own, list_edge_blobs()["zero"]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            kzg.compute_cells(blob, setup)
        except ForkedError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "before fork(); open another one" in answer.read()
    os.waitpid(child, 0)
    assert kzg.compute_cells(blob, setup)[0] == blob[:2048]
