"""blst in ckzg's library: its points are right, and arkworks computes where it is not there."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator

import ckzg
import pytest

from gpu_executor import kzg
from gpu_executor.curves import BLS12_381_G1 as G1
from gpu_executor.errors import KzgDataError
from gpu_executor.kzg import blst as blst_module
from gpu_executor.kzg import pairing, verification
from gpu_executor.kzg.blst import Blst, load_blst
from tests.support.kzg_setups import GENERATOR, INFINITY, OUTSIDE, SetupPair, draw_blob


@pytest.fixture
def blst() -> Blst:
    found = load_blst()
    assert found is not None
    return found


@pytest.fixture
def fresh() -> Iterator[None]:
    """`load_blst` looks again, in the test and after it."""
    load_blst.cache_clear()
    yield
    load_blst.cache_clear()


def encode(multiple: int) -> bytes:
    return (G1.generator * multiple).to_bytes().tobytes()


def test_bytes_that_are_no_point_of_the_group_are_refused(blst: Blst) -> None:
    stray = b"\xc0" + bytes(46) + b"\x01"
    for data in (OUTSIDE, stray, b"\xe0" + bytes(47), bytes(48), b"\xff" * 48, b"\x9f" * 48):
        assert blst.decode(data) is None
    assert blst.encode(blst.decode(INFINITY)) == INFINITY


@pytest.mark.parametrize("scalar", [0, 1, 2, 3, (1 << 128) - 1, 1 << 128, G1.order - 1])
def test_multiples_and_sums(blst: Blst, scalar: int) -> None:
    point = blst.decode(encode(9))
    product = blst.multiply(point, scalar)
    assert blst.encode(product) == encode(9 * scalar % G1.order)
    total = blst.sum([product, point, blst.negate(product), product, product])
    assert blst.encode(total) == encode((18 * scalar + 9) % G1.order)
    assert blst.encode(product) == encode(9 * scalar % G1.order)  # nothing was changed


def test_sums_of_multiples(blst: Blst) -> None:
    draw = random.Random(3)
    for count in (0, 1, 2, 3, 7, 31, 32, 40):
        numbers = [
            draw.choice([0, 1, 2, 5, G1.order - 5, draw.randrange(G1.order)]) for _ in range(count)
        ]
        points = [blst.decode(encode(each)) for each in numbers]
        for bits in (8, 128, 255):
            scalars = [
                draw.choice([0, 1, (1 << bits - 1) + 1, draw.getrandbits(bits)]) for _ in numbers
            ]
            found = blst.sum_multiples(points, scalars)
            right = sum(n * k for n, k in zip(numbers, scalars, strict=True)) % G1.order
            assert blst.encode(found) == encode(right)


def test_pairings_with_infinity(blst: Blst) -> None:
    h, infinity = blst.get_lines(blst_module._encode_g2(1)), b"\xc0" + bytes(95)
    nothing = blst.run_miller_loop(blst.decode(INFINITY), h)
    nothing_either = blst.run_miller_loop(blst.generator, blst.get_lines(infinity))
    something = blst.run_miller_loop(blst.generator, h)
    assert blst.is_power(blst.pair([nothing, nothing_either]), 0)
    assert not blst.is_power(blst.pair([nothing, nothing_either]), 1)
    assert blst.is_power(blst.pair([nothing, something]), 1)
    assert not blst.is_power(blst.pair([something, nothing_either]), 0)


@pytest.mark.parametrize(
    "k", [1, 255, 256, 1 << 254, (1 << 254) + 0xFF00FF, G1.order - 1, G1.order]
)
def test_powers_of_the_pairing_of_the_generators(blst: Blst, k: int) -> None:
    multiple = blst.run_miller_loop(
        blst.decode(encode(k)), blst.get_lines(blst_module._encode_g2(1))
    )
    other = blst.run_miller_loop(
        blst.decode(encode(9)), blst.get_lines(blst_module._encode_g2(G1.order - 7))
    )
    found = blst.pair([multiple, other])
    assert blst.is_power(found, (k - 63) % G1.order)
    assert not blst.is_power(found, k)
    assert not blst.is_power(found, (k - 62) % G1.order)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("what", ["no package", "no function", "other sizes", "wrong results"])
def test_a_library_that_is_not_as_it_must_be_is_not_used(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "no package":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    elif what == "no function":
        calls = {**blst_module.LONG_CALLS, "blst_of_another_name": []}
        monkeypatch.setattr(blst_module, "LONG_CALLS", calls)
    elif what == "other sizes":
        monkeypatch.setattr(blst_module, "SIZES", {**blst_module.SIZES, "p1": 152})
    else:
        monkeypatch.setattr(Blst, "negate", lambda _self, point: point)
    assert load_blst() is None


@pytest.mark.parametrize(("count", "has_blst"), [(1, True), (3, True), (3, False)])
def test_blobs_are_verified_with_blst_and_without(
    known: SetupPair, monkeypatch: pytest.MonkeyPatch, count: int, has_blst: bool
) -> None:
    if not has_blst:
        for module in (verification, pairing):
            monkeypatch.setattr(module, "load_blst", lambda: None)
    blobs = [draw_blob(20 + index) for index in range(count)]
    commitments = [ckzg.blob_to_kzg_commitment(blob, known.ckzg) for blob in blobs]
    proofs = [
        ckzg.compute_blob_kzg_proof(blob, commitment, known.ckzg)
        for blob, commitment in zip(blobs, commitments, strict=True)
    ]

    def verify(own_commitments: list[bytes], own_proofs: list[bytes]) -> bool:
        joined = [b"".join(each) for each in (blobs, own_commitments, own_proofs)]
        return kzg.verify_blob_kzg_proof_batch(joined[0], joined[1], joined[2], known.own)

    assert verify(commitments, proofs)
    for wrong in (INFINITY, GENERATOR):
        assert not verify(commitments, [*proofs[:-1], wrong])
        assert not verify([*commitments[:-1], wrong], proofs)
    for bad in (OUTSIDE, bytes(48)):
        with pytest.raises(KzgDataError, match=rf"proofs\[{count - 1}\] is not a"):
            verify(commitments, [*proofs[:-1], bad])
        with pytest.raises(KzgDataError, match=r"commitments\[0\] is not a compressed"):
            verify([bad, *commitments[1:]], [*proofs[:-1], bad])


def test_interrupted_verifications_leave_no_task_that_waits(
    known: SetupPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = draw_blob(30)
    commitment = ckzg.blob_to_kzg_commitment(blob, known.ckzg)
    proof = ckzg.compute_blob_kzg_proof(blob, commitment, known.ckzg)
    joined = blob * 9, commitment * 9, proof * 9

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("send_polynomials", "hash_blobs", "start_evaluation"):
        with monkeypatch.context() as patch:
            patch.setattr(verification, name, interrupt)
            for _ in range(verification.THREADS + 1):
                with pytest.raises(KeyboardInterrupt):
                    kzg.verify_blob_kzg_proof_batch(*joined, known.own)
    assert kzg.verify_blob_kzg_proof_batch(*joined, known.own)
