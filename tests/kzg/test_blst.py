"""blst in ckzg's library: its points are right, and arkworks computes where it is not there."""

from __future__ import annotations

import importlib.util
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


def test_pairings_with_infinity(blst: Blst) -> None:
    h = blst.decode_g2(blst_module._encode_g2(1))
    nothing = blst.run_miller_loop(blst.decode(INFINITY), h)
    something = blst.run_miller_loop(blst.generator, h)
    assert blst.pairings_equal(nothing, nothing)
    assert not blst.pairings_equal(nothing, something)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("what", ["no package", "no function", "other sizes", "wrong results"])
def test_a_library_that_is_not_as_it_must_be_is_not_used(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "no package":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    elif what == "no function":
        changed = blst_module.DECLARATIONS.replace("blst_p1_sizeof", "blst_p1_length")
        monkeypatch.setattr(blst_module, "DECLARATIONS", changed)
    elif what == "other sizes":
        monkeypatch.setattr(blst_module, "SIZES", {**blst_module.SIZES, "p1": 152})
    else:
        monkeypatch.setattr(Blst, "negate", lambda _self, point: point)
    assert load_blst() is None


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("has_blst", [True, False])
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
