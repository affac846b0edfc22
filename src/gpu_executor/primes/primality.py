"""Is a number prime?"""

import hashlib

# Miller-Rabin with these bases is a proof below this bound (Sorenson and Webster, 2015).
_PROVING_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PROVED_BELOW = 3_317_044_064_679_887_385_961_981
# Above it a composite passes one base in four at most, so 4^-40 = 2^-80 for all of these.
_HASHED_BASES = 40


def is_prime(number: int) -> bool:
    """Miller-Rabin: a proof below 3.3 * 10^24, wrong with chance at most 2^-80 above."""
    if number < 2:
        return False
    for prime in _PROVING_BASES:
        if number % prime == 0:
            return number == prime
    bases = _PROVING_BASES if number < _PROVED_BELOW else _hashed_bases(number)
    return all(_passes(number, base) for base in bases)


def _hashed_bases(number: int) -> tuple[int, ...]:
    """Bases drawn from a hash of the number.

    The same number always gets the same answer, yet nobody can build a composite to suit bases
    that change with it.
    """
    # 16 bytes more than the number has, so that reducing them favours no base noticeably.
    size = (number.bit_length() + 7) // 8 + 16
    stream = hashlib.shake_256(number.to_bytes(size, "little")).digest(size * _HASHED_BASES)
    draws = (stream[start : start + size] for start in range(0, len(stream), size))
    return tuple(2 + int.from_bytes(draw, "little") % (number - 3) for draw in draws)


def _passes(number: int, base: int) -> bool:
    """Whether `number`, odd, is a strong probable prime to `base`."""
    # number - 1 = odd * 2^twos
    twos = (number - 1 & 1 - number).bit_length() - 1
    power = pow(base, number - 1 >> twos, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
