"""`ProvingKey`: a key of Groth16 on one or more devices, which makes proofs."""

from __future__ import annotations

import functools
import operator
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any, Literal, Self

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.calls.arguments import describe
from gpu_executor.common.fork import raise_forked
from gpu_executor.common.progress import show_progress
from gpu_executor.curves import PointArray
from gpu_executor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DeviceLostError,
    WitnessError,
)
from gpu_executor.executor import GpuExecutor
from gpu_executor.groth16.blinding import Blinding, parse_blinding
from gpu_executor.groth16.finishers import Finishers
from gpu_executor.groth16.key_device import list_devices
from gpu_executor.groth16.key_points import Check, KeyLoader, choose_glv
from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import Prover
from gpu_executor.groth16.sections import PathLike
from gpu_executor.groth16.verification import verify
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.groth16.witness_file import Witness, require_fit
from gpu_executor.groth16.zkey_file import HEADER, ZkeyFile

Proved = tuple[Proof, list[int]]
"""A proof and its public values."""
CHECKED: dict[Check, str] = {
    "group": "in their groups",
    "curve": "on their curves",
    "none": "not checked",
}
"""What is known of the points of a key, by their check."""
PROOFS_IN_FLIGHT = 2
"""Proofs of a device that are submitted and not completed: the device computes one, and the host
uploads the next witness and blinds the proof before."""


class ProvingKey:
    """A proving key of Groth16 on a device. `ProvingKey.load` makes it, and `close()` or the end of
    a `with` frees it. Threads may share it.

    Witnesses and blinding are secrets: no message, log or statistic has them, and device memory
    that held them is overwritten before anything else gets it: by `close()` at the latest, or when
    the key is garbage-collected or its executor is closed. Nothing runs in constant time.

    Args:
        source (str): The file, for messages.
        curve (ProofCurve): The curve of the key.
        check (str): How its points were checked: "group", "curve" or "none".
        verification_key (VerificationKey): What verifies the proofs.
        provers (list[Prover]): The key on each device.
        signals (int): Values of a witness.
        resources (ExitStack): What is closed with the key.
    """

    def __init__(
        self,
        source: str,
        curve: ProofCurve,
        check: Check,
        verification_key: VerificationKey,
        provers: list[Prover],
        signals: int,
        resources: ExitStack,
    ) -> None:
        self.source = source
        """The file."""
        self.verification_key = verification_key
        """What verifies the proofs of the key."""
        self.n_signals = signals
        """Values of a witness."""
        self._curve, self._check = curve, check
        self._glv = choose_glv(curve, check)
        self._provers, self._resources = provers, resources
        self._process, self._closed = os.getpid(), False
        self._lock = threading.Lock()
        self._free: SimpleQueue[int] = SimpleQueue()
        """Numbers of provers that can begin with a proof, each as often as it can. What refers to
        a proof does not keep the prover of a closed key."""
        for number in [*range(len(provers))] * PROOFS_IN_FLIGHT:
            self._free.put(number)
        self._finishers: Finishers[Proved] = Finishers(len(provers), "groth16")

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        device: Backend | None = None,
        check: Literal["group", "curve"] = "group",
        trusted: bool = False,
        memory: int | None = None,
    ) -> Self:
        """Read a .zkey file, check its points on the device and keep them there.

        Args:
            path (str | Path): The file.
            device (GpuExecutor | Backend | None): Where proofs are computed: an executor, whose
                devices share batches, or a backend. Without one, the key opens a `GpuExecutor` and
                closes it with itself.
            check (str): "group": points are on the curve and in the group of prime order. "curve":
                points are on the curve; scalars are not halved then, and proofs take longer.
            trusted (bool): Whether points are not checked at all. A key from elsewhere can then
                make proofs that reveal the witness.
            memory (int | None): The most bytes of a device that points and matrices may take. A key
                that needs more is read from its file for every proof. None for three quarters of
                the free memory.
        """
        level = _parse_check(check, trusted)
        limit = _parse_memory(memory)
        zkey = ZkeyFile.open(path)
        with ExitStack() as resources:
            gpu = resources.enter_context(GpuExecutor()) if device is None else device
            devices = list_devices(gpu, "a proving key")
            with ThreadPoolExecutor(1) as thread:
                # Python integers take 20 ms, while the devices check the other points.
                header = thread.submit(_check_header, zkey, level)
                provers = [KeyLoader(each, zkey, level).load(limit) for each in devices]
                header.result()
            key = VerificationKey.from_zkey(zkey)
            own = resources.pop_all()
            return cls(str(path), zkey.curve, level, key, list(provers), zkey.n_vars, own)

    @property
    def curve(self) -> str:
        """The name of the curve: "bn128" or "bls12381"."""
        return self._curve.name

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the key takes on its devices, without those of a proof."""
        return sum(each.nbytes for each in self._provers)

    # --- proofs ---

    def prove(
        self,
        witness: Witness,
        *,
        verify: bool = False,
        blinding: tuple[int, int] | None = None,
    ) -> Proved:
        """A proof of a witness, and its public values.

        Args:
            witness (Witness): The values of all signals. They are not checked against the circuit
                (`check_witness` does); the proof of wrong values does not verify.
            verify (bool): Whether the proof is verified; one that does not verify raises
                `WitnessError`.
            blinding (tuple): r and s, for tests: a proof whose r and s somebody knows reveals its
                witness. By default they are drawn from the system's source of randomness.
        """
        return self._begin(witness, blinding)(verify)

    def prove_batch(self, witnesses: Iterable[Witness], *, verify: bool = False) -> list[Proved]:
        """Proofs of many witnesses, in their order. The host prepares one while the devices compute
        others.

        Args:
            witnesses (Iterable[Witness]): The witnesses; an iterator is read as proofs are made.
            verify (bool): Whether each proof is verified, as `prove` does.
        """
        source: Iterable[Witness] = witnesses
        if isinstance(witnesses, Sequence):
            source = show_progress(witnesses, "proofs")
        futures = [self.submit(each, verify=verify) for each in source]
        return [each.result() for each in futures]

    def submit(
        self,
        witness: Witness,
        *,
        verify: bool = False,
        blinding: tuple[int, int] | None = None,
    ) -> Future[Proved]:
        """Begin with a proof, and return its future. While as many proofs as the devices take are
        under way, this waits. The future cannot be cancelled.

        Args:
            witness (Witness): The values, as `prove` takes them.
            verify (bool): Whether the proof is verified, as `prove` does.
            blinding (tuple): r and s, for tests.
        """
        finish = self._begin(witness, blinding)
        return self._finishers.submit(functools.partial(finish, verify))

    def _begin(
        self, witness: Witness, blinding: tuple[int, int] | None
    ) -> Callable[[bool], Proved]:
        """Submit a proof to a device that has room for it. What this returns finishes the proof and
        must be called; its argument says whether the proof is verified."""
        self._check_usable()
        require_fit(witness, self._curve, self.n_signals, "the key")
        secret = Blinding(self._curve, parse_blinding(self._curve, blinding))
        public = [witness[each] for each in range(1, self.verification_key.n_public + 1)]
        number = self._free.get()
        try:
            provers = self._provers
            self._check_usable()  # here for a thread that waited while another one closed the key
            pending = provers[number].submit(witness.words, secret)
        except BaseException:
            self._free.put(number)
            raise

        def finish(checks: bool) -> Proved:
            try:
                sums = pending.fetch()
            finally:
                self._free.put(number)
            proof = secret.finish(sums, self._glv)
            if checks and not verify(self.verification_key, public, proof):
                raise WitnessError(
                    "the proof does not verify: the witness does not satisfy the circuit of the "
                    "key; check_witness names the constraint"
                )
            return proof, public

        return finish

    # --- lifetime ---

    def close(self) -> None:
        """Overwrite what proofs have left on the devices, and free the key; close the executor if
        the key opened it. Proofs under way are completed first."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _ in range(len(self._provers) * PROOFS_IN_FLIGHT):
            self._free.get()  # proofs under way give their provers back
        self._free.put(0)  # wakes threads that wait, one by one, which find the key closed
        self._finishers.shutdown()
        devices = [each.device for each in self._provers]
        self._provers = []
        try:
            for each in devices:
                with suppress(DeviceLostError):  # its memory is never used again
                    each.overwrite_secrets()
        finally:
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            "a proving key is in device memory and cannot be pickled; send the path of its file"
        )

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise_forked()
        if self._closed:
            raise ClosedError("the proving key is closed; ProvingKey.load loads another one")

    def __repr__(self) -> str:
        head = f"<ProvingKey of {self.source}, {self.curve}, {self.n_signals:,} signals"
        if self._closed:
            return f"{head}, closed>"
        places = len(self._provers)
        where = "on its device" if places == 1 else f"on {places} devices"
        return f"{head}, points {CHECKED[self._check]}: {self.nbytes:,} bytes {where}>"


def _parse_check(check: Any, trusted: Any) -> Check:
    if check not in ("group", "curve"):
        raise ArgumentValueError(f"check={check!r}: it is 'group' or 'curve'")
    if not isinstance(trusted, bool):
        raise ArgumentTypeError(f"trusted= is {describe(trusted)}; it is True or False")
    if trusted and check == "curve":
        raise ArgumentValueError("trusted=True checks nothing, so check='curve' has no meaning")
    return "none" if trusted else check


def _parse_memory(memory: Any) -> int | None:
    if memory is None:
        return None
    if isinstance(memory, bool) or not hasattr(memory, "__index__") or memory < 0:
        raise ArgumentTypeError(f"memory= is {describe(memory)}; it is a number of bytes")
    return operator.index(memory)


def _check_header(zkey: ZkeyFile, check: Check) -> None:
    """Check the points of the header, on the host. None of them is at infinity."""
    curve, file = zkey.curve, zkey.file
    for group, names in (
        (curve.g1, ("alpha1", "beta1", "delta1")),
        (curve.g2, ("beta2", "gamma2", "delta2")),
    ):
        points = PointArray(group, np.stack([getattr(zkey, name) for name in names]))
        valid = np.ones(len(names), np.bool_)
        if check != "none":
            valid = group.in_subgroup(points) if check == "group" else group.is_on_curve(points)
        wanted = "in the group" if check == "group" else "on the curve"
        for name, is_valid, infinite in zip(names, valid, points.is_infinity(), strict=True):
            if infinite:
                file.fail(f"{name} is the point at infinity", HEADER)
            if not is_valid:
                file.fail(f"{name} is not a point {wanted}", HEADER)
