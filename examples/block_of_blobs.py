"""A block of blobs: cells and proofs for all of them, and their verification, beside ckzg.

python examples/block_of_blobs.py [BLOBS ...]    default: 21 and 72 on a GPU, 1 on a software device

Several devices share the blobs of a block: each has a trusted setup of its own, and a thread. On a
Ray cluster, an actor that loads a setup takes the place of a thread.
"""

import importlib.util
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.kzg.setup_file import find_mainnet_setup


def draw_blobs(count: int) -> np.ndarray:
    """Random field elements below the modulus."""
    blobs = np.frombuffer(secrets.token_bytes(count * 131_072), np.uint8).reshape(count, 4096, 32)
    return np.where(np.arange(32) == 0, blobs & 0x3F, blobs).reshape(count, 131_072)


def time_call(what: str, function, *arguments):
    begun = time.perf_counter()
    result = function(*arguments)
    print(f"{what}: {(time.perf_counter() - begun) * 1e3:,.1f} ms")
    return result


devices = [each for each in gx.devices() if each.kind != "cpu"] or gx.devices()[:1]
gpus = [gx.GpuExecutor("vulkan", devices=[each.index]) for each in devices]
setups = [kzg.load_trusted_setup(gpu=gpu) for gpu in gpus]
print(f"{len(gpus)} device(s): {', '.join(each.name for each in devices)}")
counts = [int(each) for each in sys.argv[1:]] or ([1] if devices[0].kind == "cpu" else [21, 72])


def prove(blobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells and proofs; every device takes a share of the blobs."""
    shares = np.array_split(blobs, len(setups))
    with ThreadPoolExecutor(len(setups)) as pool:
        parts = list(pool.map(kzg.compute_cells_and_kzg_proofs_batch, shares, setups))
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


for count in counts:
    blobs = draw_blobs(count)
    commitments = kzg.blob_to_kzg_commitment_batch(blobs, setups[0])
    if devices[0].kind != "cpu":
        prove(blobs)  # the first call compiles and records
    cells, proofs = time_call(f"{count} blobs, cells and proofs", prove, blobs)
    valid = time_call(
        f"verification of {cells.shape[0] * 128:,} cells",
        kzg.verify_cell_kzg_proof_batch,
        np.repeat(commitments, 128, axis=0),
        np.tile(np.arange(128), count),
        cells.reshape(-1, 2048),
        proofs.reshape(-1, 48),
        setups[0],
    )
    print("all cells are valid" if valid else "some cell is wrong")

if importlib.util.find_spec("ckzg") is not None:
    import ckzg

    peer = ckzg.load_trusted_setup(str(find_mainnet_setup()), 0)
    blob = blobs[-1].tobytes()
    theirs = time_call("ckzg, one blob", ckzg.compute_cells_and_kzg_proofs, blob, peer)
    same = [each.tobytes() for each in proofs[-1]] == theirs[1]
    print("ckzg has the same proofs" if same else "ckzg has other proofs")

for setup, gpu in zip(setups, gpus, strict=True):
    setup.close()
    gpu.close()
