"""Points and pairings of BLS12-381 by blst, in the library that ckzg brings.

blst takes half the time of arkworks for a pairing, and its calls run side by side in threads: cffi
releases Python's global lock, py-arkworks-bls12381 keeps it. ckzg is there where eth-account is,
which has mainnet's setup. ckzg's extension module exports blst's C functions, though nothing
promises that it does: `load_blst` tries them, and returns None where a name, a size or a result is
not as it must be. Then arkworks computes.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable
from typing import Any

from gpu_executor.curves import BLS12_381_G1

DECLARATIONS = """
typedef struct { uint64_t words[12]; } blst_p1_affine;
typedef struct { uint64_t words[18]; } blst_p1;
typedef struct { uint64_t words[24]; } blst_p2_affine;
typedef struct { uint64_t words[72]; } blst_fp12;
size_t blst_p1_affine_sizeof(void);
size_t blst_p1_sizeof(void);
size_t blst_p2_affine_sizeof(void);
size_t blst_fp12_sizeof(void);
int blst_p1_uncompress(blst_p1_affine *out, const unsigned char *in);
bool blst_p1_affine_in_g1(const blst_p1_affine *p);
int blst_p2_uncompress(blst_p2_affine *out, const unsigned char *in);
bool blst_p2_affine_in_g2(const blst_p2_affine *p);
void blst_p1_from_affine(blst_p1 *out, const blst_p1_affine *p);
void blst_p1_to_affine(blst_p1_affine *out, const blst_p1 *p);
bool blst_p1_affine_is_inf(const blst_p1_affine *p);
void blst_p1_compress(unsigned char *out, const blst_p1 *p);
void blst_p1_mult(blst_p1 *out, const blst_p1 *p, const unsigned char *scalar, size_t bits);
void blst_p1_add_or_double(blst_p1 *out, const blst_p1 *a, const blst_p1 *b);
void blst_p1_cneg(blst_p1 *p, bool negates);
void blst_miller_loop(blst_fp12 *out, const blst_p2_affine *q, const blst_p1_affine *p);
bool blst_fp12_finalverify(const blst_fp12 *a, const blst_fp12 *b);
const blst_fp12 *blst_fp12_one(void);
"""
SIZES = {"p1_affine": 96, "p1": 144, "p2_affine": 192, "fp12": 576}
SUCCESS = 0

Point = Any
"""A `blst_p1`."""
Loop = Any
"""A `blst_fp12`: the Miller loop of a pairing."""


class Blst:
    """blst's functions on points of G1, and pairings. Threads may share it."""

    def __init__(self, ffi: Any, library: Any) -> None:
        self._ffi, self._library = ffi, library
        self.generator = self.decode(BLS12_381_G1.generator.to_bytes().tobytes())
        """Of G1."""
        self.decode_g2 = functools.lru_cache(maxsize=16)(self._decode_g2)
        """Returns a point of G2 of a trusted setup, from its compressed bytes."""

    def decode(self, data: bytes) -> Point | None:
        """A compressed point of G1, checked to be in the group; None if it is not one."""
        affine = self._ffi.new("blst_p1_affine *")
        if self._library.blst_p1_uncompress(affine, data) != SUCCESS:
            return None
        return self._from_affine(affine) if self._library.blst_p1_affine_in_g1(affine) else None

    def decode_trusted(self, data: bytes) -> Point:
        """A compressed point of G1 that this program computed."""
        affine = self._ffi.new("blst_p1_affine *")
        found = self._library.blst_p1_uncompress(affine, data)
        assert found == SUCCESS
        return self._from_affine(affine)

    def _from_affine(self, affine: Any) -> Point:
        made = self._ffi.new("blst_p1 *")
        self._library.blst_p1_from_affine(made, affine)
        return made

    def encode(self, point: Point) -> bytes:
        """A point of G1 as 48 bytes."""
        data = self._ffi.new("unsigned char[48]")
        self._library.blst_p1_compress(data, point)
        return bytes(data)

    def multiply(self, point: Point, scalar: int) -> Point:
        """k P, for a k that is not negative."""
        made, data = self._ffi.new("blst_p1 *"), scalar.to_bytes(32, "little")
        self._library.blst_p1_mult(made, point, data, max(scalar.bit_length(), 1))
        return made

    def negate(self, point: Point) -> Point:
        """-P."""
        made = self._ffi.new("blst_p1 *", point[0])
        self._library.blst_p1_cneg(made, True)
        return made

    def sum(self, points: Iterable[Point]) -> Point:
        """The sum of points, at least one."""
        first, *others = points
        made = self._ffi.new("blst_p1 *", first[0])
        for each in others:
            self._library.blst_p1_add_or_double(made, made, each)
        return made

    def _decode_g2(self, data: bytes) -> Any:
        affine = self._ffi.new("blst_p2_affine *")
        found = self._library.blst_p2_uncompress(affine, data)
        assert found == SUCCESS
        assert self._library.blst_p2_affine_in_g2(affine)
        return affine

    def run_miller_loop(self, p: Point, q: Any) -> Loop:
        """The first part of the pairing e(p, q)."""
        affine = self._ffi.new("blst_p1_affine *")
        self._library.blst_p1_to_affine(affine, p)
        if self._library.blst_p1_affine_is_inf(affine):
            return self._ffi.new("blst_fp12 *", self._library.blst_fp12_one()[0])
        made = self._ffi.new("blst_fp12 *")
        self._library.blst_miller_loop(made, q, affine)
        return made

    def pairings_equal(self, loop: Loop, other: Loop) -> bool:
        """Whether the pairings with these Miller loops are equal."""
        return bool(self._library.blst_fp12_finalverify(loop, other))


@functools.cache
def load_blst() -> Blst | None:
    """blst, if ckzg is installed and its functions do what they must."""
    spec = importlib.util.find_spec("ckzg")
    if spec is None or spec.origin is None:
        return None
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    try:
        library = ffi.dlopen(spec.origin)
        found = {name: getattr(library, f"blst_{name}_sizeof")() for name in SIZES}
        blst = Blst(ffi, library)
        return blst if found == SIZES and _is_right(blst) else None
    except (OSError, AttributeError, AssertionError):
        return None


def _is_right(blst: Blst) -> bool:
    """Whether a few results are right: points, multiples, sums, and equations of pairings."""
    curve = BLS12_381_G1
    k, other = 0x1F3D5B79, curve.order - 5
    encode, generator = _encode_multiple, blst.generator
    outside = b"\x80" + bytes(46) + b"\x04"  # on the curve, and not in the group
    if generator is None or blst.decode(outside) is not None:
        return False
    multiple, opposite = blst.multiply(generator, k), blst.multiply(generator, other)
    total = blst.sum([multiple, blst.negate(opposite), generator])
    infinity = blst.sum([multiple, blst.negate(multiple)])
    right = [(multiple, k), (opposite, other), (total, k - other + 1), (infinity, 0)]
    if any(blst.encode(point) != encode(number) for point, number in right):
        return False
    h = blst.decode_g2(_encode_g2(1))
    twice = blst.decode_g2(_encode_g2(2))
    one, two, three = (
        blst.run_miller_loop(blst.multiply(multiple, number), h) for number in (1, 2, 3)
    )
    doubled, nothing = blst.run_miller_loop(multiple, twice), blst.run_miller_loop(infinity, h)
    equal = blst.pairings_equal(two, doubled)
    return equal and not any(blst.pairings_equal(two, each) for each in (one, three, nothing))


def _encode_multiple(scalar: int) -> bytes:
    curve = BLS12_381_G1
    return (curve.generator * (scalar % curve.order)).to_bytes().tobytes()


def _encode_g2(scalar: int) -> bytes:
    from gpu_executor.curves import BLS12_381_G2

    return (BLS12_381_G2.generator * scalar).to_bytes().tobytes()
