"""Points and pairings of BLS12-381 by blst, in the library that ckzg brings.

blst takes half the time of arkworks for a pairing, and its calls run side by side in threads:
py-arkworks-bls12381 keeps Python's global lock. Here long calls release it. Short ones keep it: a
thread that releases it waits until another one does, which takes longer than such a call.

ckzg is there where eth-account is, which has mainnet's setup. ckzg's extension module exports
blst's C functions, though nothing promises that it does: `load_blst` tries them, and returns None
where a name, a size or a result is not as it must be. Then arkworks computes.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any

from gpu_executor.curves import BLS12_381_G1, BLS12_381_G2

SIZES = {"p1_affine": 96, "p1": 144, "p2_affine": 192, "fp12": 576}
LINES_BYTES = 68 * 288
"""The lines of a Miller loop: 68 of three coordinates in Fq2."""
SUCCESS = 0
COMPRESSED_FLAG = 0x80
SCALAR_BYTES = 32

AFFINE, POINT = ctypes.c_uint64 * 12, ctypes.c_uint64 * 18
G2_AFFINE, FP12 = ctypes.c_uint64 * 24, ctypes.c_uint64 * 72
LINES = ctypes.c_uint64 * (LINES_BYTES // 8)
Point = Any
"""A `blst_p1`."""
Lines = Any
"""What a Miller loop needs of a point of G2; None for infinity."""
Loop = Any
"""A `blst_fp12`: the Miller loop of a pairing."""
Pairing = Any
"""A `blst_fp12`: a product of pairings."""

ADDRESS, BYTES, COUNT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
LONG_CALLS: dict[str, list[Any]] = {
    "blst_aggregate_in_g1": [ADDRESS, ADDRESS, BYTES],
    "blst_p1_mult": [ADDRESS, ADDRESS, BYTES, COUNT],
    "blst_p1s_mult_pippenger": [ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT, ADDRESS],
    "blst_precompute_lines": [ADDRESS, ADDRESS],
    "blst_miller_loop_lines": [ADDRESS, ADDRESS, ADDRESS],
    "blst_final_exp": [ADDRESS, ADDRESS],
}
"""The arguments of functions that take 60 us or more, on a core at 2.5 GHz."""
SHORT_CALLS: dict[str, list[Any]] = {
    "blst_p1s_mult_pippenger_scratch_sizeof": [COUNT],
    "blst_p1_uncompress": [ADDRESS, BYTES],
    "blst_p1_from_affine": [ADDRESS, ADDRESS],
    "blst_p1_to_affine": [ADDRESS, ADDRESS],
    "blst_p1_is_inf": [ADDRESS],
    "blst_p1_compress": [ADDRESS, ADDRESS],
    "blst_p1_add_or_double": [ADDRESS, ADDRESS, ADDRESS],
    "blst_p1_cneg": [ADDRESS, ctypes.c_bool],
    "blst_p2_uncompress": [ADDRESS, BYTES],
    "blst_p2_affine_in_g2": [ADDRESS],
    "blst_p2_affine_is_inf": [ADDRESS],
    "blst_fp12_one": [],
    "blst_fp12_mul": [ADDRESS, ADDRESS, ADDRESS],
    "blst_fp12_is_equal": [ADDRESS, ADDRESS],
    **{f"blst_{name}_sizeof": [] for name in SIZES},
}
"""The arguments of others, which take 16 us or less, and of those that are called once."""
RESULTS: dict[str, Any] = {
    "blst_aggregate_in_g1": ctypes.c_int,
    "blst_p1_uncompress": ctypes.c_int,
    "blst_p2_uncompress": ctypes.c_int,
    "blst_p1_is_inf": ctypes.c_bool,
    "blst_p2_affine_in_g2": ctypes.c_bool,
    "blst_p2_affine_is_inf": ctypes.c_bool,
    "blst_fp12_one": ADDRESS,
    "blst_fp12_is_equal": ctypes.c_bool,
    "blst_p1s_mult_pippenger_scratch_sizeof": COUNT,
    **{f"blst_{name}_sizeof": COUNT for name in SIZES},
}


class Library:
    """blst's functions as attributes, each with the types of its arguments and of its result."""

    def __init__(self, path: str) -> None:
        for loaded, calls in (
            (ctypes.CDLL(path), LONG_CALLS),
            (ctypes.PyDLL(path), SHORT_CALLS),
        ):
            for name, arguments in calls.items():
                function = getattr(loaded, name)
                function.argtypes, function.restype = arguments, RESULTS.get(name)
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # for type checkers: the attributes are those of the tables


class Blst:
    """blst's functions on points of G1, and pairings. Threads may share it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._one = FP12.from_buffer_copy(FP12.from_address(library.blst_fp12_one()))
        self.generator = self.decode(BLS12_381_G1.generator.to_bytes().tobytes())
        """Of G1."""
        self.get_lines = functools.lru_cache(maxsize=16)(self._make_lines)
        """Returns the lines of a point of G2 of a trusted setup, from its compressed bytes."""
        self._powers = self._make_powers()

    # --- points ---

    def decode(self, data: bytes) -> Point | None:
        """A compressed point of G1, checked to be in the group; None if it is not one."""
        if not data[0] & COMPRESSED_FLAG:
            return None  # 96 bytes would be read
        made = POINT()
        found = self._library.blst_aggregate_in_g1(made, None, data)
        return made if found == SUCCESS else None

    def decode_trusted(self, data: bytes) -> Point:
        """A compressed point of G1 that this program computed."""
        affine, made = AFFINE(), POINT()
        found = self._library.blst_p1_uncompress(affine, data)
        assert found == SUCCESS
        self._library.blst_p1_from_affine(made, affine)
        return made

    def encode(self, point: Point) -> bytes:
        """A point of G1 as 48 bytes."""
        data = ctypes.create_string_buffer(48)
        self._library.blst_p1_compress(data, point)
        return data.raw

    def multiply(self, point: Point, scalar: int) -> Point:
        """k P, for a k that is not negative."""
        made, data = POINT(), scalar.to_bytes(SCALAR_BYTES, "little")
        self._library.blst_p1_mult(made, point, data, max(scalar.bit_length(), 1))
        return made

    def negate(self, point: Point) -> Point:
        """-P."""
        made = POINT(*point)
        self._library.blst_p1_cneg(made, True)
        return made

    def sum(self, points: Iterable[Point]) -> Point:
        """The sum of points; infinity of none."""
        made = POINT()
        for each in points:
            self._library.blst_p1_add_or_double(made, made, each)
        return made

    def sum_multiples(self, points: Sequence[Point], scalars: Sequence[int]) -> Point:
        """The sum of k P, for k from 0 to 2^256 - 1, in one call that releases Python's lock."""
        # blst inverts coordinates of all points together, and that of infinity has no inverse.
        terms = [
            (self._get_affine(point), scalar)
            for point, scalar in zip(points, scalars, strict=True)
            if scalar and not self._library.blst_p1_is_inf(point)
        ]
        made, count = POINT(), len(terms)
        if not count:
            return made
        width = -(-max(scalar for _, scalar in terms).bit_length() // 8)
        encoded = b"".join(scalar.to_bytes(width, "little") for _, scalar in terms)
        affine = (AFFINE * count)(*(point for point, _ in terms))
        # After a null pointer all others follow the first one's target.
        scratch_bytes = self._library.blst_p1s_mult_pippenger_scratch_sizeof(count)
        self._library.blst_p1s_mult_pippenger(
            made,
            (ADDRESS * 2)(ctypes.addressof(affine), None),
            count,
            (BYTES * 2)(encoded, None),
            8 * width,
            ctypes.create_string_buffer(scratch_bytes),
        )
        return made

    def _get_affine(self, point: Point) -> Any:
        affine = AFFINE()
        self._library.blst_p1_to_affine(affine, point)
        return affine

    # --- pairings ---

    def _make_lines(self, data: bytes) -> Lines:
        affine, made = G2_AFFINE(), LINES()
        found = self._library.blst_p2_uncompress(affine, data)
        assert found == SUCCESS
        assert self._library.blst_p2_affine_in_g2(affine)
        if self._library.blst_p2_affine_is_inf(affine):
            return None
        self._library.blst_precompute_lines(made, affine)
        return made

    def run_miller_loop(self, p: Point, lines: Lines) -> Loop:
        """The first part of the pairing e(p, q), given the lines of q."""
        if lines is None or self._library.blst_p1_is_inf(p):
            return self._one
        made = FP12()
        self._library.blst_miller_loop_lines(made, lines, self._get_affine(p))
        return made

    def multiply_loops(self, loops: Sequence[Loop]) -> Loop:
        """The product of Miller loops, at least one."""
        product = FP12.from_buffer_copy(loops[0])
        for each in loops[1:]:
            self._library.blst_fp12_mul(product, product, each)
        return product

    def pair(self, loops: Sequence[Loop]) -> Pairing:
        """The product of the pairings with these Miller loops, at least one."""
        made = FP12()
        self._library.blst_final_exp(made, self.multiply_loops(loops))
        return made

    def is_power(self, pairing: Pairing, exponent: int) -> bool:
        """Whether a product of pairings is e(G, H)^k, G and H the generators, for k from 0 to
        2^256 - 1."""
        power = FP12.from_buffer_copy(self._one)
        for row, digit in zip(self._powers, exponent.to_bytes(SCALAR_BYTES, "little"), strict=True):
            if digit:
                self._library.blst_fp12_mul(power, power, row[digit])
        return bool(self._library.blst_fp12_is_equal(pairing, power))

    def _make_powers(self) -> Any:
        """e(G, H)^(d 256^k) for every byte d, at [k][d]: 4.7 MB, in 25 ms. They make a power in 32
        products of 3 us each, while a Miller loop and a final exponentiation take 660 us."""
        multiply = self._library.blst_fp12_mul
        rows = (FP12 * 256 * SCALAR_BYTES)()
        h = self.get_lines(_encode_g2(1))
        base = self.pair([self.run_miller_loop(self.generator, h)])
        for row in rows:
            row[0] = self._one
            for digit in range(1, 256):
                multiply(row[digit], row[digit - 1], base)
            following = FP12()
            multiply(following, row[255], base)
            base = following
        return rows


@functools.cache
def load_blst() -> Blst | None:
    """blst, if ckzg is installed and its functions do what they must."""
    spec = importlib.util.find_spec("ckzg")
    if spec is None or spec.origin is None:
        return None
    try:
        library = Library(spec.origin)
        found = {name: getattr(library, f"blst_{name}_sizeof")() for name in SIZES}
        if found != SIZES:
            return None
        blst = Blst(library)
        return blst if _is_right(blst) else None
    except (OSError, AttributeError, AssertionError):
        return None


def _is_right(blst: Blst) -> bool:
    """Whether a few results are right: points, multiples, sums, and pairings."""
    k, other = 0x1F3D5B79, BLS12_381_G1.order - 5
    generator = blst.generator
    outside = b"\x80" + bytes(46) + b"\x04"  # on the curve, and not in the group
    if generator is None or blst.decode(outside) is not None:
        return False
    multiple, opposite = blst.multiply(generator, k), blst.multiply(generator, other)
    infinity = blst.sum([multiple, blst.negate(multiple)])
    right = [
        (multiple, k),
        (opposite, other),
        (blst.sum([multiple, blst.negate(opposite), generator]), k - other + 1),
        (infinity, 0),
        (blst.sum_multiples([multiple, infinity, opposite], [other, 3, k]), 2 * k * other),
    ]
    encode = _encode_multiple
    if any(blst.encode(point) != encode(number) for point, number in right):
        return False
    if any(blst.encode(blst.decode(encode(each))) != encode(each) for each in (0, k)):
        return False
    h, twice = blst.get_lines(_encode_g2(1)), blst.get_lines(_encode_g2(2))
    loops = blst.run_miller_loop(opposite, h), blst.run_miller_loop(multiple, twice)
    nothing = blst.run_miller_loop(infinity, twice)
    found, alone = blst.pair(loops), blst.pair([loops[0], nothing])
    order = BLS12_381_G1.order
    powers = [(found, 2 * k - 5), (found, 2 * k + other), (alone, other)]
    wrong = [(found, 2 * k - 4), (found, 0), (alone, order - 4), (alone, 2 * k + other)]
    return all(blst.is_power(*each) for each in powers) and not any(
        blst.is_power(*each) for each in wrong
    )


def _encode_multiple(scalar: int) -> bytes:
    curve = BLS12_381_G1
    return (curve.generator * (scalar % curve.order)).to_bytes().tobytes()


def _encode_g2(scalar: int) -> bytes:
    return (BLS12_381_G2.generator * scalar).to_bytes().tobytes()
