"""A block of blobs, shared by several devices: cells and proofs for all of them, verification.

python examples/blobs_on_devices.py [BLOBS ...]          on the devices of this machine
python examples/blobs_on_devices.py --ray [BLOBS ...]    on the devices of a Ray cluster

By default 21 and 72 blobs on a GPU, 1 on a software device. Every device has a trusted setup of its
own and takes a share of the blobs. With --ray, an actor beside each device of the cluster takes the
place of a thread; Ray starts on this machine unless RAY_ADDRESS names a cluster.

pip install '.[kzg,ray]'
"""

import argparse
import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from block_of_blobs import draw_blobs

import gpu_executor as gx
from gpu_executor import kzg


class BlobWorker:
    """A device with a trusted setup: in this process, or in a Ray actor."""

    def __init__(self, gpu: gx.GpuExecutor) -> None:
        self._gpu = gpu
        self._setup = kzg.load_trusted_setup(device=gpu)

    def describe(self) -> tuple[str, str]:
        return self._gpu.device.kind, self._gpu.device.name

    def commit(self, blobs: np.ndarray) -> np.ndarray:
        return kzg.blob_to_kzg_commitment_batch(blobs, self._setup)

    def prove(self, blobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return kzg.compute_cells_and_kzg_proofs_batch(blobs, self._setup)

    def verify(self, commitments: np.ndarray, cells: np.ndarray, proofs: np.ndarray) -> bool:
        indices = np.tile(np.arange(128), len(cells))
        each = np.repeat(commitments, 128, axis=0)
        rows = cells.reshape(-1, 2048), proofs.reshape(-1, 48)
        return kzg.verify_cell_kzg_proof_batch(each, indices, *rows, self._setup)

    def close(self) -> None:
        self._setup.close()
        self._gpu.close()


class LocalWorkers:
    """A worker and a thread for each device of this machine."""

    def __init__(self) -> None:
        devices = [each for each in gx.devices() if each.kind != "cpu"] or gx.devices()[:1]
        gpus = [gx.GpuExecutor("vulkan", devices=[each.index]) for each in devices]
        self.workers = [BlobWorker(gpu) for gpu in gpus]
        self._threads = ThreadPoolExecutor(len(gpus))

    def call(self, method: str, *shares: list) -> list:
        """Call a method of every worker with its share of each argument."""
        methods = [getattr(worker, method) for worker in self.workers]
        return list(self._threads.map(lambda call, *own: call(*own), methods, *shares))

    def close(self) -> None:
        self.call("close")
        self._threads.shutdown()


class RayWorkers:
    """A worker in an actor beside each device of a Ray cluster."""

    def __init__(self) -> None:
        import ray

        self._ray = ray
        ray.init(include_dashboard=False)
        self.workers = gx.cluster.start_actors(BlobWorker, "vulkan")

    def call(self, method: str, *shares: list) -> list:
        """Call a method of every worker with its share of each argument."""
        given = zip(self.workers, *shares, strict=True) if shares else zip(self.workers)
        return self._ray.get([getattr(each, method).remote(*own) for each, *own in given])

    def close(self) -> None:
        self.call("close")
        self._ray.shutdown()


def time_call(what: str, function, *arguments):
    begun = time.perf_counter()
    result = function(*arguments)
    print(f"{what}: {(time.perf_counter() - begun) * 1e3:,.1f} ms", flush=True)
    return result


def process_block(workers: LocalWorkers | RayWorkers, count: int, *, warm_up: bool):
    """Prove and verify a block of random blobs."""
    shares = np.array_split(draw_blobs(count), len(workers.workers))
    commitments = workers.call("commit", shares)
    if warm_up:
        workers.call("prove", shares)  # the first call compiles and records
    parts = time_call(f"{count} blobs, cells and proofs", workers.call, "prove", shares)
    cells, proofs = (list(each) for each in zip(*parts, strict=True))
    valid = time_call(
        f"verification of {count * 128:,} cells", workers.call, "verify", commitments, cells, proofs
    )
    print("all cells are valid" if all(valid) else "some cell is wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description="Prove and verify the blobs of a block.")
    parser.add_argument("blobs", type=int, nargs="*", help="numbers of blobs")
    parser.add_argument("--ray", action="store_true", help="use the devices of a Ray cluster")
    options = parser.parse_args()
    if options.ray and importlib.util.find_spec("ray") is None:
        sys.exit("--ray needs Ray, which is not installed: pip install '.[ray]'")
    workers = RayWorkers() if options.ray else LocalWorkers()
    kinds, names = zip(*workers.call("describe"), strict=True)
    print(f"{len(names)} device(s): {', '.join(names)}")
    on_cpu = kinds[0] == "cpu"
    for count in options.blobs or ([1] if on_cpu else [21, 72]):
        process_block(workers, count, warm_up=not on_cpu)
    workers.close()


if __name__ == "__main__":
    main()
