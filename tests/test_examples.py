"""Every program in examples/ runs as a reader would run it, and prints what it promises."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.examples import FOLDER, GALLERY, run_example

EXPECTED_OUTPUT = {
    "first_program.py": [
        r"<GpuExecutor on .* by \w+, open>",
        "twice 999999 is 1999998",
        "thrice 999999 is 2999997",
        "modulo a prime of 381 bits: 2 12",
    ],
    "batch.py": [r"one by one: [\d,]+ ms", r"in a batch: [\d,]+ ms", "the results are the same"],
    "stream.py": [
        r"(?m)^ +0 \+ ... \+  4,095 =   8,386,560 ok$",
        r"(?m)^36,864 \+ ... \+ 40,959 = 159,381,504 ok$",
        "ten sums were taken, 1[0-4] blocks were produced",
    ],
    "on_asyncio.py": [
        "request 1: a matrix of 20 x 20 squared, its trace is 180",
        "request 5: a matrix of 100 x 100 squared, its trace is 900",
        r"meanwhile the heart beat \d+ times",
    ],
    "several_devices.py": [
        r"device 0, .*: \d+ calls",
        r"device 1, .*: \d+ calls",
        "200 results came in the order of the jobs, all right",
    ],
}


RUN_ELSEWHERE = {"blobs_on_devices.py", "on_ray.py", "peer_program.py", "prove_many.py", *GALLERY}
"""tests/test_gallery.py, tests/bench/test_peer_program.py, tests/kzg/test_block_of_blobs.py,
tests/groth16/test_prove_many.py, tests/cluster/test_page.py and tests/cluster/test_prove_many.py
run them."""


def test_every_example_is_run() -> None:
    assert EXPECTED_OUTPUT.keys() | RUN_ELSEWHERE == {path.name for path in FOLDER.glob("*.py")}


@pytest.mark.parametrize("name", EXPECTED_OUTPUT)
def test_an_example_prints_its_expected_output(name: str) -> None:
    shown = run_example(name)
    for pattern in EXPECTED_OUTPUT[name]:
        assert re.search(pattern, shown), shown


def test_the_spirv_file_of_an_example_is_compiled_from_its_source() -> None:
    command = ["glslc", "--target-env=vulkan1.2", "mandelbrot.comp", "-o", "-"]
    compiled = subprocess.run(command, cwd=FOLDER, stdout=subprocess.PIPE, check=True).stdout
    assert (FOLDER / "mandelbrot.spv").read_bytes() == compiled
