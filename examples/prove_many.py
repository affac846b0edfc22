"""Groth16 proofs of all witnesses in a folder, shared by several devices.

python examples/prove_many.py circuit.zkey FOLDER          on the devices of this machine
python examples/prove_many.py circuit.zkey FOLDER --ray    on the devices of a Ray cluster

The proof of NAME.wtns is written to proof-NAME.json, its public values to public-NAME.json. Every
device has a worker with a key of its own, and gets paths of witnesses, not their values: with --ray
all nodes see the same folder. Ray starts on this machine unless RAY_ADDRESS names a cluster.

Proofs that are there are not made again, so the program may be stopped and started again. What a
lost worker had not written is proved by another one.

pip install '.[groth16,ray]'
"""

import argparse
import importlib.util
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import gpu_executor as gx
from gpu_executor import groth16
from gpu_executor.errors import ProofFileError, WitnessError

SHARE = 8
"""Witnesses that a worker gets at once: the host prepares one while the device computes another."""
TRIES = 3
"""How often workers are started, if all of them are lost."""
Call = Callable[..., Future]
"""Calls a method of a worker by its name."""


def name_outputs(witness: Path) -> tuple[Path, Path]:
    """The files of the proof and of its public values."""
    proof, public = (
        witness.with_name(f"{kind}-{witness.stem}.json") for kind in ("proof", "public")
    )
    return proof, public


class ProofWorker:
    """A device with a proving key: in this process, or in a Ray actor."""

    def __init__(self, gpu: gx.GpuExecutor) -> None:
        self._gpu = gpu

    def load(self, zkey: Path) -> str:
        self._key = groth16.ProvingKey.load(zkey, device=self._gpu)
        return self._gpu.device.name

    def prove(self, witnesses: list[Path]) -> dict[str, str]:
        """Prove witnesses and write the files. Returns the faults of those that have one."""
        faults, futures = {}, {}
        for path in witnesses:
            if name_outputs(path)[0].exists():  # a worker wrote it, and was lost before it said so
                continue
            try:
                futures[path] = self._key.submit(groth16.load_witness(path), verify=True)
            except (ProofFileError, WitnessError, OSError) as error:
                faults[str(path)] = str(error)
        for path, future in futures.items():
            try:
                self._write(path, *future.result())
            except WitnessError as error:
                faults[str(path)] = str(error)
        return faults

    def _write(self, witness: Path, proof: groth16.Proof, public: list[int]) -> None:
        """Each file appears in one step, that of the proof last: where it is, both are whole."""
        proof_file, public_file = name_outputs(witness)
        texts = {public_file: groth16.public_to_json(public), proof_file: proof.to_json()}
        for path, text in texts.items():
            temporary = path.with_name(f"{path.name}.tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)

    def close(self) -> None:
        self._key.close()
        self._gpu.close()


def start_local_workers() -> list[Call]:
    """A worker and a thread for each device of this machine."""
    devices = [each for each in gx.devices() if each.kind != "cpu"] or gx.devices()[:1]

    def start(index: int) -> Call:
        worker, thread = ProofWorker(gx.GpuExecutor("vulkan", device=index)), ThreadPoolExecutor(1)
        return lambda method, *arguments: thread.submit(getattr(worker, method), *arguments)

    return [start(each.index) for each in devices]


def start_ray_workers() -> list[Call]:
    """A worker in an actor beside each device of a Ray cluster."""
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False)

    def bind(actor) -> Call:
        return lambda method, *arguments: getattr(actor, method).remote(*arguments).future()

    return [bind(each) for each in gx.cluster.start_actors(ProofWorker, "vulkan")]


def prove_all(start: Callable[[], list[Call]], zkey: Path, witnesses: list[Path]) -> dict[str, str]:
    """Prove all witnesses; returns the faults of those that cannot be proved."""
    shares = deque(witnesses[at : at + SHARE] for at in range(0, len(witnesses), SHARE))
    faults: dict[str, str] = {}
    for _ in range(TRIES):
        workers = start()
        names = [each.result() for each in [call("load", zkey) for call in workers]]
        print(f"{len(names)} device(s): {', '.join(names)}", flush=True)
        for call in run_shares(workers, shares, faults):
            call("close").result()
        if not shares:
            return faults
    sys.exit(f"{sum(map(len, shares))} witnesses are left: all workers were lost {TRIES} times")


def run_shares(workers: list[Call], shares: deque, faults: dict[str, str]) -> list[Call]:
    """Give shares to workers until no share or no worker is left. Returns the workers left."""
    idle, busy = list(workers), {}
    while (shares and idle) or busy:
        while shares and idle:
            call, share = idle.pop(), shares.popleft()
            busy[call("prove", share)] = call, share
        for future in wait(busy, return_when=FIRST_COMPLETED).done:
            call, share = busy.pop(future)
            if (error := future.exception()) is None:
                faults |= future.result()
                idle.append(call)
            else:
                print(f"a worker is lost, its witnesses go to another: {type(error).__name__}")
                shares.append(share)
    return idle


def main() -> None:
    parser = argparse.ArgumentParser(description="Prove all witnesses of a folder.")
    parser.add_argument("zkey", type=Path, help="the proving key")
    parser.add_argument("folder", type=Path, help="the folder with .wtns files")
    parser.add_argument("--ray", action="store_true", help="use the devices of a Ray cluster")
    options = parser.parse_args()
    if options.ray and importlib.util.find_spec("ray") is None:
        sys.exit("--ray needs Ray, which is not installed: pip install '.[ray]'")
    found = sorted(options.folder.resolve().glob("*.wtns"))
    missing = [each for each in found if not name_outputs(each)[0].exists()]
    print(f"{len(found)} witness(es), {len(found) - len(missing)} of them proved before")
    start = start_ray_workers if options.ray else start_local_workers
    faults = prove_all(start, options.zkey.resolve(), missing) if missing else {}
    for path, reason in faults.items():
        print(f"not proved: {path}: {reason}", file=sys.stderr)
    print(f"{len(missing) - len(faults)} proof(s) made")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
