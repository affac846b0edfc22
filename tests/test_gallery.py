"""The programs of the gallery: their pictures show what an independent computation gives.

tests/kzg/test_block_of_blobs.py has the test of block_of_blobs.py, and
tests/groth16/test_circuit_proof.py that of circuit_proof.py."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import struct
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import flint
import numpy as np
import pytest

from tests.support.examples import FOLDER, GALLERY, run_example
from tests.support.pages import REPOSITORY

PAGES = REPOSITORY / "docs" / "gallery"
SVG = "{http://www.w3.org/2000/svg}"
MODULUS = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
STAGES = {"fill", "copy in", "compute", "copy out", "drain"}


def read_chunks(png: bytes) -> dict[bytes, bytes]:
    """The chunks of a PNG by name, with their checksums compared."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length) == (zlib.crc32(name + data),)
        chunks[name] = data
        at += 12 + length
    return chunks


def count_steps(width: int, height: int, most: int) -> np.ndarray:
    """Steps z -> z^2 + c until |z| is 2 or more, in 32-bit floats."""
    x, y = np.meshgrid(
        np.linspace(-2.2, 0.8, width, dtype=np.float32),
        np.linspace(-1, 1, height, dtype=np.float32),
    )
    c = np.stack([x, y])
    z, steps = np.zeros_like(c), np.zeros((height, width), np.uint32)
    for _ in range(most):
        inside = z[0] * z[0] + z[1] * z[1] < 4
        steps += inside
        following = np.stack([z[0] * z[0] - z[1] * z[1], 2 * z[0] * z[1]]) + c
        z = np.where(inside, following, z)
    return steps


def test_the_pixels_of_the_mandelbrot_set_are_the_counted_steps(tmp_path: Path) -> None:
    output = tmp_path / "new folder" / "mandelbrot.png"
    shown = run_example("mandelbrot.py", "-o", str(output), "--width", "240")
    chunks = read_chunks(output.read_bytes())
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (240, 160, 8, 3, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(160, 241)
    expected = count_steps(240, 160, 200)
    assert not rows[:, 0].any()
    assert np.array_equal(rows[:, 1:], expected)
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    assert len(palette) == 201 and not palette[200].any()
    assert len(np.unique(palette[:20], axis=0)) == 20  # neighbours have different colours
    assert f"{expected.sum():,} steps in" in shown
    assert "38,400 elements on the" in shown


@pytest.mark.parametrize(
    ("program", "option", "message"),
    [
        ("mandelbrot.py", ("--width", "1"), "--width is 1; it must be 2 or more"),
        ("polynomial_product.py", ("--largest", "3"), "--largest: invalid choice: 3"),
    ],
)
def test_sizes_without_a_picture_are_refused(
    program: str,
    option: tuple[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [program, *option])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(FOLDER / program), run_name="__main__")
    assert message in capsys.readouterr().err


def test_products_of_polynomials_are_those_of_flint(tmp_path: Path) -> None:
    output = tmp_path / "product.svg"
    shown = run_example("polynomial_product.py", "-o", str(output), "--largest", "6")
    found = {int(size): int(value) for size, value in re.findall(r"c\[(\d+)\] = (\d+)", shown)}
    draw = runpy.run_path(str(FOLDER / "polynomial_product.py"))["draw_polynomial"]
    ring = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(MODULUS))
    for size in (16, 64):
        product = ring(draw(size, 2 * size)) * ring(draw(size, 2 * size + 1))
        assert found.pop(size) == int(product[size])
    assert found == {}
    picture = ElementTree.parse(output)
    lines = [each.get("points", "").split() for each in picture.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines] == [2, 2]  # both ways, at two sizes
    assert "Measured on" in "".join(picture.getroot().itertext())


def test_the_trace_has_every_stage_of_every_job_and_so_has_the_picture(tmp_path: Path) -> None:
    output, trace = tmp_path / "trace.svg", tmp_path / "trace.json"
    shown = run_example("profile_trace.py", "-o", str(output), "--trace", str(trace))
    assert len(re.findall(r"fill \d", shown)) == 2
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [each for each in events if each["ph"] == "X" and each["name"] in STAGES]
    assert all(each["dur"] > 0 for each in spans)
    chunks = {each["args"]["chunk"] for each in spans}
    assert len(chunks) == 8
    assert {(each["args"]["chunk"], each["name"]) for each in spans} == set(
        itertools.product(chunks, STAGES)
    )
    titles = [each.text or "" for each in ElementTree.parse(output).iter(f"{SVG}title")]
    for job, stage in itertools.product(range(1, 9), STAGES):
        assert sum(title.startswith(f"job {job}, {stage}: ") for title in titles) == 2


@pytest.mark.slow
def test_the_trees_of_the_gallery_have_the_times_of_every_hash_function(tmp_path: Path) -> None:
    """The program compares its roots with hashlib's, and verifies its proofs."""
    output = tmp_path / "merkle-tree.svg"
    shown = run_example("merkle_tree.py", "-o", str(output), "--largest", "6")
    assert "every proof is right" in shown and shown.count(" leaves, ") == 6
    text = output.read_text()
    for name in ("hashlib", "SHA-256", "Keccak-256", "Poseidon2"):
        assert name in text, name


@pytest.mark.parametrize("program", GALLERY)
def test_a_page_of_the_gallery_shows_a_program_and_its_picture(program: str) -> None:
    assert len((FOLDER / program).read_text().splitlines()) <= 80
    picture = PAGES / GALLERY[program]
    assert 1_000 < picture.stat().st_size < 200_000
    text = picture.with_suffix(".md").read_text()
    assert f'--8<-- "examples/{program}"' in text
    assert f"]({picture.name})" in text
    assert re.search(r"(?s)\*[^*]*[Mm]ade on [^*]+\*", text)  # the caption names the device
