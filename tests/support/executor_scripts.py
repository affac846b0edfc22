"""Scripts that use executors in their own interpreters, with a time limit."""

from __future__ import annotations

import subprocess

from tests.conftest import RunPython

BEGIN = """
import atexit, gc, os, signal, sys, threading, time
import numpy as np, gpu_executor as gx
from concurrent.futures import as_completed, wait
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
ADD = gx.kernels.load("vector_add_u32")
X = np.arange(3000, dtype=np.uint32)
LONG = gx.kernels.load("bls12_381_fq_add")
WORDS = np.zeros((1 << 15, 6), np.uint64)  # takes lavapipe and the CPU some milliseconds
seen = []

def right(results):
    found = [(result == 2 * X).all() for result in results]
    return len(found) > 0 and all(found)

signal.alarm(300)
"""


def check_script(
    run_python: RunPython, script: str, printed: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    ran = run_python(BEGIN + script)
    assert (ran.returncode, ran.stdout.split()) == (status, printed.split()), ran.stderr
    return ran
