"""The Grain LFSR in self-shrinking mode: where Poseidon and Poseidon2 take their constants from.

The generator is the one of the reference scripts of both papers (`generate_parameters_grain.sage`,
`poseidon2_rust_params.sage`): 80 bits of state that encode the parameters; the first 160 bits of
its output are discarded. Of every two bits, the second is taken if the first is set.
"""

from __future__ import annotations

from gpu_executor.primes import Prime

STATE_BITS = 80
FEEDBACK = (62, 51, 38, 23, 13, 0)
"""The bits of the state whose sum is the next bit."""
STEP_BITS = 16
"""Bits made at once: the feedback of the last of them reaches bit 77 of the state."""
DISCARDED_STEPS = 160 // STEP_BITS
PRIME_FIELD, POWER_S_BOX = 1, 0


def _shrink(byte: int) -> str:
    """The bits that are taken of eight, of which the lowest is the first."""
    return "".join(str(byte >> at + 1 & 1) for at in range(0, 8, 2) if byte >> at & 1)


SHRUNK = [_shrink(byte) for byte in range(256)]


class Grain:
    """The generator for a field, a width and numbers of rounds of an S-box that is a power."""

    def __init__(self, prime: Prime, width: int, full_rounds: int, partial_rounds: int) -> None:
        self._prime = prime
        fields = (
            (PRIME_FIELD, 2),
            (POWER_S_BOX, 4),
            (prime.bits, 12),
            (width, 12),
            (full_rounds, 10),
            (partial_rounds, 10),
            (2**30 - 1, 30),
        )
        text = "".join(f"{value:0{bits}b}" for value, bits in fields)
        self._state = int(text[::-1], 2)  # bit i of the state is the i-th bit of the text
        self._bits = ""
        for _ in range(DISCARDED_STEPS):
            self._step()

    def _step(self) -> int:
        state, mask, made = self._state, (1 << STEP_BITS) - 1, 0
        for at in FEEDBACK:
            made ^= state >> at
        made &= mask
        self._state = state >> STEP_BITS | made << (STATE_BITS - STEP_BITS)
        return made

    def _draw_integer(self) -> int:
        """The next integer of as many bits as the modulus, the most significant bit first."""
        count = self._prime.bits
        while len(self._bits) < count:
            made = self._step()
            self._bits += SHRUNK[made & 0xFF] + SHRUNK[made >> 8]
        value, self._bits = int(self._bits[:count], 2), self._bits[count:]
        return value

    def draw_elements(self, count: int) -> list[int]:
        """The next integers below the modulus; larger ones are skipped."""
        found: list[int] = []
        while len(found) < count:
            if (value := self._draw_integer()) < self._prime.modulus:
                found.append(value)
        return found

    def draw_cauchy_matrix(self, width: int) -> list[list[int]]:
        """The next matrix 1 / (x_i + y_j), of different x_i and y_j, which are integers modulo p:
        all of them are drawn again if two are equal or an entry would be 1 / 0."""
        modulus = self._prime.modulus
        while True:
            drawn = [self._draw_integer() % modulus for _ in range(2 * width)]
            xs, ys = drawn[:width], drawn[width:]
            if len(set(drawn)) == len(drawn) and all((x + y) % modulus for x in xs for y in ys):
                return [[pow(x + y, -1, modulus) for y in ys] for x in xs]
