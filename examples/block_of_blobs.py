"""A block of blobs: commitments, cells with their proofs, and verification, beside ckzg.

python examples/block_of_blobs.py [-o build/block-of-blobs.svg] [--blobs 21] [--rounds 2]
pip install '.[kzg]' ckzg        # without ckzg, nothing is compared
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np

from gpu_executor import GpuExecutor, kzg
from gpu_executor.kzg.setup_file import find_mainnet_setup
from gpu_executor.report.picture import draw_picture
from gpu_executor.report.shared_figures import make_stack_figure


def draw_blobs(count: int) -> np.ndarray:
    """Random field elements below the modulus."""
    blobs = np.random.default_rng(count).integers(0, 256, (count, 4096, 32), np.uint8)
    return np.where(np.arange(32) == 0, blobs & 0x3F, blobs).reshape(count, 131_072)


def time_call(times: dict[str, float], stage: str, function, *arguments):
    begun = time.perf_counter()
    result = function(*arguments)
    times[stage] = (time.perf_counter() - begun) * 1e3
    print(f"  {stage}: {times[stage]:,.1f} ms", flush=True)
    return result


def process_block(blobs: np.ndarray, setup: kzg.TrustedSetup, times: dict[str, float]) -> list:
    """Prove and verify all blobs. Returns the commitment and the proofs of the first one."""
    commitments = time_call(times, "commitments", kzg.blob_to_kzg_commitment_batch, blobs, setup)
    cells, proofs = time_call(times, "proofs", kzg.compute_cells_and_kzg_proofs_batch, blobs, setup)
    indices, each = np.tile(np.arange(128), len(blobs)), np.repeat(commitments, 128, axis=0)
    given = each, indices, cells.reshape(-1, 2048), proofs.reshape(-1, 48), setup
    assert time_call(times, "verification", kzg.verify_cell_kzg_proof_batch, *given)
    return [commitments[0].tobytes(), [proof.tobytes() for proof in proofs[0]]]


def process_with_ckzg(blob: bytes, times: dict[str, float]) -> list:
    import ckzg

    setup = ckzg.load_trusted_setup(str(find_mainnet_setup()), 0)
    commitment = time_call(times, "commitments", ckzg.blob_to_kzg_commitment, blob, setup)
    cells, proofs = time_call(times, "proofs", ckzg.compute_cells_and_kzg_proofs, blob, setup)
    given = [commitment] * 128, list(range(128)), cells, proofs, setup
    assert time_call(times, "verification", ckzg.verify_cell_kzg_proof_batch, *given)
    return [commitment, proofs]


def main() -> None:
    parser = argparse.ArgumentParser(description="Prove and verify the blobs of a block.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/block-of-blobs.svg"))
    parser.add_argument("--blobs", type=int, help="21 on a GPU, 1 on a software device")
    parser.add_argument("--rounds", type=int, default=2, help="how often the block is processed")
    options = parser.parse_args()
    stacks: dict[str, dict[str, float]] = {}
    with GpuExecutor("vulkan") as gpu, kzg.load_trusted_setup(device=gpu) as setup:
        blobs = draw_blobs(options.blobs or (1 if gpu.device.kind == "cpu" else 21))
        for number in range(1, max(options.rounds, 1) + 1):
            print(label := f"{len(blobs)} blob(s), round {number}")
            own = process_block(blobs, setup, stacks.setdefault(label, {}))
    print(f"all cells are valid; the first commitment is {own[0].hex()}")
    if importlib.util.find_spec("ckzg") is not None:
        print(label := "ckzg, 1 blob on one thread")
        theirs = process_with_ckzg(blobs[0].tobytes(), stacks.setdefault(label, {}))
        print("ckzg has the same proofs" if own == theirs else "ckzg has other proofs")
    title, caption = "Stages of a block of blobs", "Shares of the stages. The first round compiles."
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure = make_stack_figure("", title, caption, list(stacks.items()))
    options.output.write_text(draw_picture(figure, gpu.device.name), encoding="utf-8")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
