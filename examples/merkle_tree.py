"""Merkle trees by several hash functions, with proofs of their leaves; beside hashlib.

python examples/merkle_tree.py [-o build/merkle-tree.svg] [--largest 12]
"""

import argparse
import hashlib
import itertools
import time
from pathlib import Path

import numpy as np

from gpu_executor import GpuExecutor, MerkleTree, fields, hashes
from gpu_executor.report.charts import ChartAxis, ChartLine, DataPoint
from gpu_executor.report.format import format_power, format_time
from gpu_executor.report.picture import draw_picture
from gpu_executor.report.shared_figures import make_line_figure

POSEIDON2 = hashes.poseidon2(fields.BABYBEAR, width=16)
HASHES = {"SHA-256": hashes.SHA256, "Keccak-256": hashes.KECCAK256, "Poseidon2": POSEIDON2}


def draw_leaves(hash_function, count: int):
    drawn = np.random.default_rng(1).integers(0, 256, (count, 32), np.uint8)
    return fields.BABYBEAR.random((count, 8)) if hash_function is POSEIDON2 else drawn


def build_tree(there, hash_function) -> tuple[float, MerkleTree]:
    MerkleTree(there, hash=hash_function)  # the first tree of a size compiles
    begun, tree = time.perf_counter(), MerkleTree(there, hash=hash_function)
    assert len(tree.root)  # on the host: the device has finished
    return (time.perf_counter() - begun) * 1e3, tree


def check_proof(tree: MerkleTree, leaves) -> None:
    indices, given = [3, 0, len(leaves) - 1], {"hash": tree.hash, "count": len(leaves)}
    shown, proof = leaves[np.array(indices)], tree.open(indices)
    assert MerkleTree.verify(tree.root, indices, shown, proof, **given)
    assert not MerkleTree.verify(tree.root, indices, shown[::-1], proof, **given)


def hash_with_hashlib(leaves: np.ndarray) -> tuple[float, bytes]:
    begun, level = time.perf_counter(), leaves.tobytes()
    while len(level) > 32:
        pairs = (level[at : at + 64] for at in range(0, len(level), 64))
        level = b"".join(hashlib.sha256(pair).digest() for pair in pairs)
    return (time.perf_counter() - begun) * 1e3, level


def main() -> None:
    parser = argparse.ArgumentParser(description="Build Merkle trees.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/merkle-tree.svg"))
    parser.add_argument("--largest", type=int, default=14, choices=range(4, 25))
    options = parser.parse_args()
    sizes = [1 << log for log in range(4, options.largest + 1, 2)]
    points = {name: [] for name in ("hashlib", *HASHES)}
    with GpuExecutor("vulkan") as gpu:
        for count, name in itertools.product(sizes, HASHES):
            leaves = draw_leaves(HASHES[name], count)
            taken, tree = build_tree(gpu.to_device(leaves), HASHES[name])
            check_proof(tree, leaves)
            points[name].append(DataPoint(count, taken))
            print(f"{count:,} leaves, {name}: {format_time(taken)}")
            if name == "SHA-256":
                taken, root = hash_with_hashlib(leaves)
                points["hashlib"].append(DataPoint(count, taken))
                assert tree.root.tobytes() == root
    lines = [ChartLine(*each, style) for style, each in enumerate(points.items())]
    axes = ChartAxis("leaves", format_power, ticks=sizes), ChartAxis("time", format_time)
    caption = "From leaves on the device to the root. hashlib: SHA-256, one node after the other."
    figure = make_line_figure("", "Time of a Merkle tree", caption, lines, *axes)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(draw_picture(figure, gpu.device.name), encoding="utf-8")
    print(f"every proof is right; written to {options.output}")


if __name__ == "__main__":
    main()
