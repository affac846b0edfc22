"""Other implementations of byte hashes on all cores, each in processes of its own: hashlib, and the
packages `blake3` and `pycryptodome`.

hashlib holds the GIL while it hashes short messages, so threads would measure the lock. Each
process hashes messages of its own for a while, all processes at once, and their rates are added.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass

from gpu_executor.bench.child_process import hide_interrupts_from_children

SCRIPT = """\
import hashlib, os, sys, time
name, length, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if name == "BLAKE3":
    from blake3 import blake3
    digest = lambda data: blake3(data).digest()
elif name == "BLAKE3 threads":
    import blake3 as package
    digest = lambda data: package.blake3(data, max_threads=package.blake3.AUTO).digest()
elif name == "KECCAK256":
    from Crypto.Hash import keccak
    digest = lambda data: keccak.new(data=data, digest_bits=256).digest()
elif name == "SHA256D":
    digest = lambda data: hashlib.sha256(hashlib.sha256(data).digest()).digest()
elif name == "RIPEMD160":
    digest = lambda data: hashlib.new("ripemd160", data).digest()
else:
    function = getattr(hashlib, name.lower())
    digest = lambda data: function(data).digest()
many = max(min(1000, (1 << 22) // max(length, 1)), 1)
data = os.urandom(length + many)
rows = [data[i : i + length] for i in range(many)]
digest(rows[0])
print("ready", flush=True)
sys.stdin.readline()
rates, end = [], time.perf_counter() + seconds
while not rates or time.perf_counter() < end:
    begun = time.perf_counter()
    for row in rows:
        digest(row)
    rates.append(many / (time.perf_counter() - begun))
print(sorted(rates)[len(rates) // 2])
"""
PACKAGES = {"BLAKE3": "blake3", "KECCAK256": "pycryptodome"}
"""The packages of hash functions that hashlib does not have."""
MODULES = {"blake3": "blake3", "pycryptodome": "Crypto"}
SECONDS, QUICK_SECONDS = 1.0, 0.2
"""How long every process hashes."""


@dataclass(frozen=True, slots=True)
class HashPeerRow:
    """The rate of another implementation."""

    hash: str
    length: int
    what: str
    """"hash", or "message" for one large message."""
    package: str
    processes: int
    per_second: float | None
    """Of all processes together; None if it was not measured."""
    reason: str | None
    """Why it was not measured."""


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_peer(
    hash_name: str, length: int, seconds: float = SECONDS, *, large: bool = False
) -> HashPeerRow:
    """Measure messages of one length on all cores; a large message by one process, with all threads
    that its package has."""
    package, what = PACKAGES.get(hash_name, "hashlib"), "message" if large else "hash"
    module = MODULES.get(package)
    if module is not None and importlib.util.find_spec(module) is None:
        return HashPeerRow(hash_name, length, what, package, 0, None, "it is not installed")
    script = "BLAKE3 threads" if large and hash_name == "BLAKE3" else hash_name
    processes = 1 if large else count_cores()
    rates = _run_processes([script, str(length), str(seconds)], processes)
    if isinstance(rates, str):
        return HashPeerRow(hash_name, length, what, package, processes, None, rates)
    return HashPeerRow(hash_name, length, what, package, processes, sum(rates), None)


def _run_processes(arguments: list[str], processes: int) -> list[float] | str:
    """The rates of processes that begin together, or the error of one."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    with hide_interrupts_from_children():
        children = [
            subprocess.Popen(
                command,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for _ in range(processes)
        ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()  # every process is ready, or has ended
        for child in children:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write("\n")
                child.stdin.flush()
        found = [child.communicate() for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()
    for child, (_, errors) in zip(children, found, strict=True):
        if child.returncode:
            return (errors.strip().splitlines() or ["it failed"])[-1]
    return [float(out) for out, _ in found]
