"""Witnesses and blinding are secrets: memory that held them is overwritten before anybody else gets
it, and nothing that is printed, logged, measured or cached has them.

Device memory is read as a whole: every byte of a backend, in use or idle. What a proof has left
there is what was not there after a proof of another witness.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import groth16
from gpu_executor.errors import WitnessError
from gpu_executor.groth16.blinding import Blinding
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.vulkan.command_stream import CommandStream
from tests.support.circuits import BLINDING, find_data
from tests.support.generator_tables import forget_tables
from tests.support.memory_dumps import (
    WindowWatch,
    contains,
    dump_memory,
    list_windows,
    require_readable,
)

MARK = 0xDEADBEEF
CIRCUIT = "arrays"
LONG = "rows"
"""A circuit with long rows, so there are sums of their pieces."""
BYTES = MARK.to_bytes(4, "little")
LONG_BLINDING = (MARK**7, MARK**6 + 1)
"""Numbers so long that no address or count has their digits by chance."""


def make_witness(seed: int, circuit: str = CIRCUIT, *, marked: bool) -> groth16.Witness:
    """Values that satisfy nothing; all words of marked ones but the last say so."""
    words = np.array(groth16.load_witness(find_data(circuit, "bn128", ".wtns")).words)
    random = np.random.default_rng(seed)
    words[1:] = random.integers(0, 1 << 28, words[1:].shape)
    if marked:
        words[1:, :4] = MARK
    return groth16.Witness.from_values(words, get_proof_curve("bn128"))


class Traces:
    """What secrets leave in the memory of a backend."""

    def __init__(self, gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        require_readable(gpu)
        self._gpu = gpu
        self._watch = WindowWatch()
        self.seen: set[bytes] = set()
        """The contents of memory whenever something was about to be overwritten."""
        overwrite = CommandStream._overwrite

        def look_and_overwrite(stream: CommandStream, allocations: Any) -> int:
            self.look()
            return overwrite(stream, allocations)

        monkeypatch.setattr(CommandStream, "_overwrite", look_and_overwrite)

    def look(self) -> None:
        self.seen |= self._watch.list_new(dump_memory(self._gpu))

    def collect(self, action: Callable[[], object]) -> set[bytes]:
        """What was in memory during an action, and not before."""
        self.look()
        before, self.seen = self.seen, set()
        action()
        self.look()
        return self.seen - before

    def check_gone(self, secrets: set[bytes]) -> None:
        """Nothing of a secret is left, after all that the device was given; a key is no secret."""
        gpu = self._gpu
        gpu.synchronize()
        dump = dump_memory(gpu)
        assert not contains(dump, BYTES * 4)
        key = find_data(CIRCUIT, "bn128", ".zkey").read_bytes()
        left = [each.hex() for each in list_windows(dump) & secrets if each not in key]
        assert not left


@pytest.fixture
def traces(gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> Traces:
    forget_tables()  # so that there is less memory to read
    gc.collect()
    gpu.synchronize()
    gpu.trim()
    return Traces(gpu, monkeypatch)


def load_key(gpu: gx.PersistentVulkanBackend, **options: Any) -> groth16.ProvingKey:
    path = find_data(CIRCUIT, "bn128", ".zkey")
    return groth16.ProvingKey.load(path, device=gpu, trusted=True, **options)


@pytest.mark.parametrize("ends", ["close", "garbage"])
def test_nothing_of_a_proof_is_left_on_the_device(
    gpu: gx.PersistentVulkanBackend, traces: Traces, ends: str
) -> None:
    key = load_key(gpu)
    key.prove(make_witness(1, marked=False))
    future: list[Any] = []

    def prove() -> None:
        future.append(key.submit(make_witness(2, marked=True)))
        future[0].result()

    secrets = traces.collect(prove)
    assert contains(dump_memory(gpu), BYTES * 4)  # until the key is gone
    assert len(secrets) > 1000
    if ends == "close":
        key.close()  # the future and the key exist
    else:
        prover = weakref.ref(key._provers[0])
        del key
        future.clear()
        gc.collect()
        assert prover() is None
    traces.check_gone(secrets)


def test_nothing_of_a_proof_with_a_key_in_its_file_is_left(
    gpu: gx.PersistentVulkanBackend, traces: Traces
) -> None:
    with load_key(gpu, memory=0) as key:
        own = groth16.load_witness(find_data(CIRCUIT, "bn128", ".wtns"))
        proof, _ = key.prove(own, blinding=BLINDING)
        assert proof.to_json() == find_data(CIRCUIT, "bn128", ".proof.json").read_text()
        witness = make_witness(2, marked=True)
        secrets = traces.collect(lambda: key.prove(witness))
        assert len(secrets) > 1000
        assert any(BYTES * 4 in each for each in secrets)
        traces.check_gone(secrets)


def test_nothing_of_a_checked_witness_is_left(
    gpu: gx.PersistentVulkanBackend, traces: Traces
) -> None:
    circuit = groth16.R1cs.open(find_data(LONG, "bn128", ".r1cs"))

    def check(witness: groth16.Witness) -> None:
        with pytest.raises(WitnessError):
            groth16.check_witness(circuit, witness, device=gpu)

    check(make_witness(1, LONG, marked=False))
    secrets = traces.collect(lambda: check(make_witness(2, LONG, marked=True)))
    assert any(BYTES * 4 in each for each in secrets)
    traces.check_gone(secrets)


def test_nothing_shows_a_secret(
    gpu: gx.PersistentVulkanBackend,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    witness = make_witness(3, marked=True)
    blinding = Blinding(witness.curve, LONG_BLINDING)
    with gpu.profile() as profile, load_key(gpu) as key:
        prover = key._provers[0]
        pending = prover.submit(witness.words, blinding)
        sums = pending.fetch()
        future = key.submit(witness, verify=True)
        with pytest.raises(WitnessError) as caught:
            future.result()
        objects = [witness, blinding, pending, sums, prover, key, future, caught.value]
    shown = [*map(repr, objects), *map(str, objects), str(profile), repr(profile)]
    shown += [str(gpu.stats()), *capfd.readouterr(), caplog.text]
    text = "\n".join(shown).lower()
    values = [witness[1], witness[2], *LONG_BLINDING]
    for point in (sums.c, sums.b1, sums.h):
        assert point is not None
        values += point
    for value in values:
        for form in (str(value), f"{value:x}", f"{value >> 128:x}", f"{value & (1 << 64) - 1:x}"):
            assert form not in text
    assert str(MARK) not in text and f"{MARK:x}" not in text
