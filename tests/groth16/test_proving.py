"""Proofs, compared bit for bit with those that snarkjs makes from the same key, witness and
blinding; keys, witnesses and proofs with faults."""

from __future__ import annotations

import dataclasses
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import groth16
from gpu_executor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    ProofFileError,
    WitnessError,
)
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.groth16.zkey_file import B2, A, H, ZkeyFile
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.ops.point_bytes import find_codes
from tests.support.circuits import BLINDING, CURVES, IN_DATA, INPUTS, SEED, find_data
from tests.support.proof_files import COORDINATE, Q, find_section
from tests.support.snarkjs import Snarkjs
from tests.support.swiftshader import open_swiftshader

GetKey = Callable[[str, str], groth16.ProvingKey]
OTHER_CURVE = pytest.param("arrays", "bls12381", marks=pytest.mark.slow)
"""What the same code does on the other curve, with one circuit: a software device takes 20 s to
compile its pipelines."""


@pytest.fixture(scope="module")
def get_key(gpu: gx.PersistentVulkanBackend) -> Iterator[GetKey]:
    """The keys of circuits, each loaded once."""
    loaded: dict[tuple[str, str], groth16.ProvingKey] = {}

    def get(name: str, curve: str) -> groth16.ProvingKey:
        if (name, curve) not in loaded:
            path = find_data(name, curve, ".zkey")
            loaded[name, curve] = groth16.ProvingKey.load(path, device=gpu)
        return loaded[name, curve]

    yield get
    for key in loaded.values():
        key.close()


def load_witness(name: str, curve: str) -> groth16.Witness:
    return groth16.load_witness(find_data(name, curve, ".wtns"))


def read(name: str, curve: str, suffix: str) -> str:
    return find_data(name, curve, suffix).read_text(encoding="utf-8")


def change_value(witness: groth16.Witness, index: int) -> groth16.Witness:
    """The witness with another value of one signal."""
    words = np.array(witness.words)
    words[index, 0] ^= 1
    return groth16.Witness.from_values(words, witness.curve)


# --- the same as snarkjs ---


def check_case(key: groth16.ProvingKey, name: str, curve: str) -> None:
    """Everything that snarkjs makes of a key and a witness is made bit for bit."""
    proof, public = key.prove(load_witness(name, curve), blinding=BLINDING)
    assert proof.to_json() == read(name, curve, ".proof.json")
    assert groth16.public_to_json(public) == read(name, curve, ".public.json")
    assert key.verification_key.to_json() == read(name, curve, ".vk.json")


@pytest.mark.parametrize(("name", "curve"), [*((name, "bn128") for name in IN_DATA), OTHER_CURVE])
def test_a_proof_is_that_of_snarkjs_bit_for_bit(get_key: GetKey, name: str, curve: str) -> None:
    key = get_key(name, curve)
    check_case(key, name, curve)
    proof, public = key.prove(load_witness(name, curve), blinding=(0, 0))
    assert groth16.verify(key.verification_key, public, proof)


def test_random_blinding(get_key: GetKey) -> None:
    key, witness = get_key("zero_output", "bn128"), load_witness("zero_output", "bn128")
    made = key.prove_batch([witness] * 3, verify=True)
    proofs = [proof for proof, _ in made]
    assert len({proof.to_json() for proof in proofs}) == 3
    publics = [public for _, public in made]
    assert publics == [[0]] * 3
    assert groth16.verify_batch(key.verification_key, publics, proofs) == [True] * 3


def test_proofs_of_many_threads(get_key: GetKey) -> None:
    key, witness = get_key("arrays", "bn128"), load_witness("arrays", "bn128")
    expected = read("arrays", "bn128", ".proof.json")
    found: list[str] = []

    def prove() -> None:
        for _ in range(2):
            found.append(key.prove(witness, blinding=BLINDING)[0].to_json())

    threads = [threading.Thread(target=prove) for _ in range(3)]  # a device takes two proofs
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [expected] * 6
    futures = [key.submit(witness, blinding=BLINDING) for _ in range(3)]
    assert [each.result()[0].to_json() for each in futures] == [expected] * 3


@pytest.mark.parametrize("options", [{"check": "curve"}, {"trusted": True}, {"memory": 0}])
def test_proofs_of_keys_that_are_loaded_otherwise(
    gpu: gx.PersistentVulkanBackend, options: dict[str, Any]
) -> None:
    path = find_data("arrays", "bn128", ".zkey")
    with groth16.ProvingKey.load(path, device=gpu, **options) as key:
        check_case(key, "arrays", "bn128")


@pytest.mark.slow
def test_devices_of_an_executor_share_a_batch() -> None:
    witness, path = load_witness("arrays", "bn128"), find_data("arrays", "bn128", ".zkey")
    with (
        gx.GpuExecutor("vulkan", devices=[0, 0]) as executor,
        groth16.ProvingKey.load(path, device=executor, trusted=True) as key,
    ):
        assert len(executor.array_devices) == len(key._provers) == 2
        assert "points not checked" in repr(key) and "on 2 devices" in repr(key)
        counts = [0, 0]
        for number, prover in enumerate(key._provers):
            count_calls(prover, counts, number)
        made = key.prove_batch([witness] * 6)
        publics, proofs = [public for _, public in made], [proof for proof, _ in made]
        assert all(groth16.verify_batch(key.verification_key, publics, proofs))
        assert sum(counts) == 6 and min(counts) >= 1
        assert len({proof.to_json() for proof in proofs}) == 6


def count_calls(prover: Any, counts: list[int], number: int) -> None:
    """Count the proofs that a prover begins."""
    submit = prover.submit

    def count(*arguments: Any) -> Any:
        counts[number] += 1
        return submit(*arguments)

    prover.submit = count


@pytest.mark.slow
@pytest.mark.usefixtures("shared_tables")
@pytest.mark.parametrize(("name", "curve"), [("rows", "bn128"), ("multiplier", "bls12381")])
def test_the_keys_are_those_of_their_seed(
    gpu: gx.PersistentVulkanBackend, name: str, curve: str, tmp_path: Path
) -> None:
    made = groth16.setup(find_data(name, curve, ".r1cs"), device=gpu, unsafe_secrets=SEED)
    made.save(tmp_path / "made.zkey")
    assert (tmp_path / "made.zkey").read_bytes() == find_data(name, curve, ".zkey").read_bytes()


# --- faults ---


def test_a_wrong_witness(get_key: GetKey) -> None:
    key, witness = get_key("arrays", "bn128"), load_witness("arrays", "bn128")
    wrong = change_value(witness, len(witness) - 1)
    proof, public = key.prove(wrong)
    assert not groth16.verify(key.verification_key, public, proof)
    with pytest.raises(WitnessError, match=r"the proof does not verify.*check_witness"):
        key.prove(wrong, verify=True)
    with pytest.raises(WitnessError, match="check_witness"):
        key.prove_batch([witness, wrong], verify=True)
    assert key.prove(witness, verify=True)[1] == public


def test_a_witness_that_does_not_fit(get_key: GetKey) -> None:
    key = get_key("multiplier", "bn128")
    with pytest.raises(WitnessError, match="has 18 values, and the key has 4 signals"):
        key.prove(load_witness("arrays", "bn128"))
    with pytest.raises(WitnessError, match="of bls12381, and the key of bn128"):
        key.prove(load_witness("multiplier", "bls12381"))
    with pytest.raises(ArgumentTypeError, match="load_witness and compute_witness make one"):
        key.prove([1, 33, 3, 11])  # type: ignore[arg-type]
    witness = load_witness("multiplier", "bn128")
    bad: list[Any] = [(1,), 5, (1.0, 2), (True, 1)]
    for blinding in bad:
        with pytest.raises(ArgumentTypeError, match="a pair of integers"):
            key.prove(witness, blinding=blinding)
    with pytest.raises(ArgumentValueError, match="r and s must be in"):
        key.prove(witness, blinding=(witness.curve.r, 0))


def write_changed(path: Path, section: int, at: int, data: bytes) -> Path:
    """A key with other bytes in a section."""
    content = bytearray(find_data("arrays", "bn128", ".zkey").read_bytes())
    start = find_section(bytes(content), section) + at
    content[start : start + len(data)] = data
    path.write_bytes(content)
    return path


def encode_outside() -> bytes:
    """A point of the curve of BN254 G2 that is not in the group, as a key has it."""
    group = get_proof_curve("bn128").g2
    arithmetic = get_arithmetic(group.key)
    for number in range(20):
        x = arithmetic.field.make([number, 1])
        y = arithmetic.field.sqrt(arithmetic.compute_right_side(x))
        if y is not None and arithmetic.multiply([(x, y)], [group.order]) != [None]:
            size, q = COORDINATE["bn128"], Q["bn128"]
            plain = [*x.coefficients, *y.coefficients]
            scaled = [(int(each) << 8 * size) % q for each in plain]
            return b"".join(each.to_bytes(size, "little") for each in scaled)
    raise AssertionError("no point was found")


def test_keys_with_faults_are_refused(gpu: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    path, size, q = tmp_path / "bad.zkey", COORDINATE["bn128"], Q["bn128"]
    one = (1).to_bytes(size, "little")

    def load(section: int, at: int, data: bytes, **options: Any) -> groth16.ProvingKey:
        changed = write_changed(path, section, at, data)
        return groth16.ProvingKey.load(changed, device=gpu, **options)

    for section, name in ((A, "A"), (H, "H")):
        for index in (0, 3):  # the last axis of both sections is x, y
            with pytest.raises(ProofFileError, match=rf"\({name}\).*point {index} is not on the"):
                load(section, 2 * size * index, one + one)
    with pytest.raises(ProofFileError, match="not below"):
        load(A, 2 * size, q.to_bytes(size, "little"))
    with pytest.raises(ProofFileError, match="not below"):
        load(A, 2 * size, q.to_bytes(size, "little"), trusted=True)
    outside = encode_outside()
    with pytest.raises(ProofFileError, match=r"\(B2\).*point 2 is on the curve and not in the gr"):
        load(B2, 4 * size * 2, outside)
    load(B2, 4 * size * 2, outside, check="curve").close()


def test_proofs_and_public_values_with_faults_are_refused(get_key: GetKey) -> None:
    key = get_key("arrays", "bn128")
    proof, public = key.prove(load_witness("arrays", "bn128"))
    vk, r = key.verification_key, proof.curve.r
    assert groth16.verify(vk, public, proof)
    for index in range(len(public)):
        wrong = [*public]
        wrong[index] = (wrong[index] + 1) % r
        assert not groth16.verify(vk, wrong, proof)
        wrong[index] = public[index] + r
        assert not groth16.verify(vk, wrong, proof)
    swapped = dataclasses.replace(proof, pi_a=proof.pi_c, pi_c=proof.pi_a)
    assert not groth16.verify(vk, public, swapped)
    other = get_key("zero_output", "bn128").verification_key
    assert not groth16.verify(other, public, proof)


def test_arguments_of_load(gpu: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    path = find_data("multiplier", "bn128", ".zkey")
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ArgumentValueError, "'group' or 'curve'", {"check": "all"}),
        (ArgumentValueError, "has no meaning", {"check": "curve", "trusted": True}),
        (ArgumentTypeError, "trusted=", {"trusted": 1}),
        (ArgumentTypeError, "memory=", {"memory": -1}),
        (ArgumentTypeError, "memory=", {"memory": 1.5}),
        (ArgumentTypeError, "device=", {"device": "vulkan"}),
    ]
    for kind, message, options in refused:
        with pytest.raises(kind, match=message):
            groth16.ProvingKey.load(path, **{"device": gpu, **options})
    with pytest.raises(FileNotFoundError):
        groth16.ProvingKey.load(tmp_path / "missing.zkey", device=gpu)


def test_a_closed_key(gpu: gx.PersistentVulkanBackend) -> None:
    path, witness = find_data("multiplier", "bn128", ".zkey"), load_witness("multiplier", "bn128")
    with groth16.ProvingKey.load(path, device=gpu) as key:
        future = key.submit(witness, blinding=BLINDING)
        assert "4 signals" in repr(key) and "points in their groups" in repr(key)
        assert "on its device" in repr(key) and key.nbytes > 0 and key.n_signals == 4
        with pytest.raises(ArgumentTypeError, match="send the path of its file"):
            pickle.dumps(key)
    assert future.result()[0].to_json() == read("multiplier", "bn128", ".proof.json")
    key.close()
    assert "closed" in repr(key)
    with pytest.raises(ClosedError, match=r"ProvingKey\.load"):
        key.prove(witness)


def test_a_future_cannot_be_cancelled(get_key: GetKey) -> None:
    key, witness = get_key("multiplier", "bn128"), load_witness("multiplier", "bn128")
    for _ in range(2):  # a proof that did not give its place back would stop the next ones
        futures = [key.submit(witness, blinding=BLINDING) for _ in range(3)]
        assert not any(each.cancel() for each in futures)
        expected = read("multiplier", "bn128", ".proof.json")
        assert [each.result(60)[0].to_json() for each in futures] == [expected] * 3


def test_callbacks_of_futures_submit_and_close(gpu: gx.PersistentVulkanBackend) -> None:
    path, witness = find_data("multiplier", "bn128", ".zkey"), load_witness("multiplier", "bn128")
    key = groth16.ProvingKey.load(path, device=gpu)
    submitted, later, is_closed = threading.Event(), [], threading.Event()

    def submit(_: object) -> None:
        submitted.wait(60)  # until all places are taken, by proofs that only the key's thread ends
        later.append(key.submit(witness, blinding=BLINDING))
        later[0].add_done_callback(close)

    def close(_: object) -> None:
        key.close()
        is_closed.set()

    first = key.submit(witness, blinding=BLINDING)
    first.add_done_callback(submit)
    futures = [first, *(key.submit(witness, blinding=BLINDING) for _ in range(2))]
    submitted.set()
    assert is_closed.wait(60)
    expected = read("multiplier", "bn128", ".proof.json")
    assert [each.result(60)[0].to_json() for each in futures + later] == [expected] * 4


# --- live ---


@pytest.mark.parametrize(("name", "curve"), [("zero_output", "bn128"), OTHER_CURVE])
def test_snarkjs_verifies_our_proofs(
    snarkjs: Snarkjs, get_key: GetKey, name: str, curve: str
) -> None:
    proof, public = get_key(name, curve).prove(load_witness(name, curve))
    key = json.loads(read(name, curve, ".vk.json"))
    texts = [str(each) for each in public]
    assert snarkjs.verify(key, texts, json.loads(proof.to_json()))
    texts[0] = str(public[0] + 1)
    assert not snarkjs.verify(key, texts, json.loads(proof.to_json()))


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
def test_a_key_of_snarkjs(
    snarkjs: Snarkjs, gpu: gx.PersistentVulkanBackend, curve: str, tmp_path: Path
) -> None:
    ptau, zkey = tmp_path / "test.ptau", tmp_path / "arrays.zkey"
    wtns = find_data("arrays", curve, ".wtns")
    snarkjs.make_ptau(curve, 4, ptau)
    snarkjs.setup(find_data("arrays", curve, ".r1cs"), ptau, zkey)
    expected, texts = snarkjs.prove(zkey, wtns, curve, *BLINDING)
    with groth16.ProvingKey.load(zkey, device=gpu) as key:
        proof, public = key.prove(groth16.load_witness(wtns), blinding=BLINDING, verify=True)
        assert json.loads(key.verification_key.to_json()) == snarkjs.export_verification_key(zkey)
    assert json.loads(proof.to_json()) == expected
    assert [str(each) for each in public] == texts


@pytest.mark.slow
@pytest.mark.usefixtures("shared_tables")
def test_a_merkle_path_of_poseidon_hashes(
    snarkjs: Snarkjs, gpu: gx.PersistentVulkanBackend, tmp_path: Path
) -> None:
    """From the circuit to a proof that snarkjs verifies, on a domain of 2^11."""
    compiled = snarkjs.compile_named("merkle", "bn128")
    zkey, wtns = tmp_path / "merkle.zkey", tmp_path / "merkle.wtns"
    groth16.setup(compiled.r1cs, device=gpu, unsafe_secrets=SEED).save(zkey)
    witness = groth16.compute_witness(compiled.wasm, INPUTS["merkle"])
    witness.save(wtns)
    groth16.check_witness(compiled.r1cs, witness, device=gpu)
    with groth16.ProvingKey.load(zkey, device=gpu) as key:
        assert ZkeyFile.open(zkey).log_domain == 11
        proof, public = key.prove(witness, blinding=BLINDING, verify=True)
        vk = key.verification_key
    expected, texts = snarkjs.prove(zkey, wtns, "bn128", *BLINDING)
    assert json.loads(proof.to_json()) == expected
    assert snarkjs.verify(json.loads(vk.to_json()), texts, expected)
    assert groth16.verify(vk, [int(each) for each in texts], proof) and public == [int(texts[0])]
    root = INPUTS["merkle"]["leaf"]
    for sibling, side in zip(INPUTS["merkle"]["siblings"], INPUTS["merkle"]["sides"], strict=True):
        root = snarkjs.hash_poseidon([sibling, root] if side else [root, sibling])
    assert public == [root]


# --- other drivers ---


@pytest.mark.slow
def test_a_proof_on_swiftshader() -> None:
    """Without 64-bit integers."""
    with (
        open_swiftshader() as device,
        groth16.ProvingKey.load(find_data("multiplier", "bn128", ".zkey"), device=device) as key,
    ):
        check_case(key, "multiplier", "bn128")


@pytest.mark.slow
def test_a_proof_by_webgpu() -> None:
    with (
        gx.WgpuExecutor() as device,
        groth16.ProvingKey.load(find_data("multiplier", "bn128", ".zkey"), device=device) as key,
    ):
        check_case(key, "multiplier", "bn128")


def test_no_points_are_checked_by_webgpu() -> None:
    """As those of the section C of a key without private signals."""
    group = get_proof_curve("bn128").g1
    with gx.WgpuExecutor() as device:
        (own,) = device.array_devices
        layout = group.get_layout("affine")
        points = own.put(np.zeros((0, *layout.element_shape), layout.column_dtype))
        assert find_codes(group.key, points).numpy().shape == (0,)
