"""Groth16: two circuits from their constraints to a verified proof, and the time of each stage.

python examples/circuit_proof.py [-o build/circuit-proof.svg] [--constraints 1000]

The keys have known secrets and are for this program alone; keys for use come from a ceremony. The
circuits are generated: in one all values are large, in the other nearly all are zero or one, as in
circuits of hash functions.
"""

import argparse
import tempfile
import time
from pathlib import Path

from gpu_executor import GpuExecutor, groth16
from gpu_executor.bench.circuits import make_bits, make_chain
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.report.picture import draw_picture
from gpu_executor.report.shared_figures import make_stack_figure

CIRCUITS = {"large values": make_chain, "zeros and ones": make_bits}
PROOFS = 4


def time_call(times: dict[str, float], stage: str, function, *arguments, **options):
    begun = time.perf_counter()
    result = function(*arguments, **options)
    times[stage] = (time.perf_counter() - begun) * 1e3
    print(f"  {stage}: {times[stage]:,.1f} ms", flush=True)
    return result


def prove_circuit(gpu: GpuExecutor, make, constraints: int, times: dict[str, float]) -> None:
    """Check a witness, prove it, and verify the proofs."""
    circuit, witness = make(get_proof_curve("bn128"), constraints)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "circuit.zkey"
        groth16.setup(circuit, device=gpu, unsafe_secrets="known to everyone").save(path)
        key = time_call(times, "key", groth16.ProvingKey.load, path, device=gpu)
        with key:
            time_call(times, "witness check", groth16.check_witness, circuit, witness, device=gpu)
            time_call(times, "first proof", key.prove, witness)
            made = time_call(times, f"{PROOFS} proofs", key.prove_batch, [witness] * PROOFS)
            proofs, publics = [proof for proof, _ in made], [public for _, public in made]
            given = key.verification_key, publics, proofs
            assert all(time_call(times, "verification", groth16.verify_batch, *given))
    print(f"  the proofs are valid for the public value {publics[0][0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Prove two circuits.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/circuit-proof.svg"))
    parser.add_argument("--constraints", type=int, help="2^18 on a GPU, 1,000 on a software device")
    options = parser.parse_args()
    stacks: dict[str, dict[str, float]] = {}
    with GpuExecutor("vulkan") as gpu:
        software = gpu.device.kind == "cpu"
        constraints = options.constraints or (1_000 if software else 1 << 18)
        for name, make in CIRCUITS.items():
            prove_circuit(gpu, make, constraints, {})  # compiles
            print(label := f"{name}, {constraints:,} constraints")
            prove_circuit(gpu, make, constraints, stacks.setdefault(label, {}))
    title = "Stages of Groth16 proofs"
    caption = "From a key in its file to verified proofs, with pipelines that are compiled."
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure = make_stack_figure("", title, caption, list(stacks.items()))
    options.output.write_text(draw_picture(figure, gpu.device.name), encoding="utf-8")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
