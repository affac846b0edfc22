"""Rows of field elements, absorbed by a permutation: the digests of many rows at once.

By steps this is one dispatch, whose invocations absorb a row each, or in which a group of
invocations absorbs a row (`choose_lanes`). On NumPy arrays all rows are
absorbed together: a number of the state is a column with one entry for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import get_profile
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.families import PACKED_ELEMENTS
from gpu_executor.kernels.field_hashes import (
    count_iterations,
    count_lanes,
    encode_initial,
    encode_numbers,
    hash_family,
    hash_kernel,
    is_wide,
)
from gpu_executor.ops import elementwise
from gpu_executor.ops.elementwise import ElementData, Words, can_pack, with_f64_limbs
from gpu_executor.ops.operation import operation
from gpu_executor.primes import Form, Prime, encoding, words

Column = npt.NDArray[Any]
"""The elements at one index of all states: uint64 if products fit, else Python integers."""

VECTORS = 128
"""The bit of the mode that lets an invocation load 16 bytes at once."""
MAX_COLUMN_BITS = 31
"""Bits of the largest modulus whose columns are uint64."""
MAX_UNROLLED_WIDTH = 6
"""Numbers of several words that a GPU keeps in registers."""
MAX_GROUPED_LOAD = {"poseidon2": 1, "poseidon": 4, "rescue": 32}
"""Invocations of groups, for each one that a device executes at the same time, up to which groups
absorb rows, by the module of the permutation. The times of groups relative to those of single
invocations, by that load (NVIDIA H200, one permutation of each state; 0: one state):

    load                              0     1     2     4     8     16    31
    Poseidon2, BabyBear, width 16     0.86  0.84  0.87  0.94  1.01  1.27  1.21
    Poseidon2, Goldilocks, width 12   0.90  0.94  1.06  1.05  1.66  3.23  4.15
    Poseidon2, BN254, width 3         0.77  0.78  1.11  1.90  2.78  3.12  3.22
    Poseidon, Goldilocks, width 12    0.28  0.29  0.31  0.38  0.61  1.09  1.70
    Rescue, Goldilocks, width 12      0.08  0.08  0.10  0.14  0.24  0.44  0.81

A Merkle tree of 2^20 leaves by Poseidon of BN254 took 15.9 ms without groups, 14.2 ms with a load
of 1, and 14.1 ms with 2 and 4; one by Poseidon2 of BabyBear 2.5 ms with any of them.
"""
MAX_GROUP_WORK_GROUP = 64
"""Invocations of a work-group of groups; of numbers of 26 limbs they need 13 KiB of shared memory,
and every device has 16 KiB."""


class Mode(IntEnum):
    """How elements of a row enter the state (glsl/field_hashes/sponge.glsl)."""

    KEEP = 0
    """They replace numbers; where the last block has no elements, the numbers remain."""
    CLEAR = 1
    """They replace numbers; where the last block has no elements, the numbers become 0."""
    ADD = 2
    """They are added to the numbers."""


class HashPermutation(Protocol):
    """What a permutation tells its host algorithm and its kernel."""

    @property
    def prime(self) -> Prime:
        """The modulus of the elements."""

    @property
    def width(self) -> int:
        """The number of elements of a state."""

    @property
    def module(self) -> str:
        """The name of its kernel, in glsl/field_hashes/."""

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """The specialization constants of the kernel."""

    def list_constants(self) -> Sequence[int]:
        """The constants of the kernel, in its order."""

    def permute(self, state: list[Column]) -> list[Column]:
        """The states after the permutation; entries are below the modulus."""


@dataclass(frozen=True, slots=True)
class Absorption:
    """How a row of `length` elements is absorbed, and what of the state is its digest."""

    length: int
    rate: int
    first: int
    mode: Mode
    initial: tuple[int, ...]
    """The state ahead of the first element."""
    blocks: int
    """The permutations that absorb; none only for rows without elements."""
    output_first: int
    outputs: int
    squeezed: int
    """The elements of the digest that one permutation yields."""

    @classmethod
    def truncate(cls, width: int, size: int, outputs: int) -> Absorption:
        """One permutation of states whose first `size` elements are the row and the others 0; its
        first elements are the digest."""
        return cls(
            length=size,
            rate=size,
            first=0,
            mode=Mode.KEEP,
            initial=(0,) * width,
            blocks=1,
            output_first=0,
            outputs=outputs,
            squeezed=outputs,
        )

    @property
    def permutations(self) -> int:
        """All permutations: the last ones yield further elements of the digest."""
        return self.blocks + (self.outputs - 1) // self.squeezed

    def push_words(self, vector: int) -> tuple[int, ...]:
        """The push words of the kernel. An invocation loads and stores `vector` elements at once if
        all lengths are multiples of it."""
        lengths = self.length, self.rate, self.first, self.output_first, self.outputs
        packs = vector > 1 and self.mode != Mode.ADD and not any(each % vector for each in lengths)
        # Numbers behind the end of a row remain in the state.
        packs &= self.blocks * self.rate == self.length or self.mode == Mode.KEEP
        mode = self.mode | VECTORS * (packs and self.outputs <= self.squeezed)
        layout = self.first | mode << 8 | self.output_first << 16 | self.squeezed << 24
        return self.length, self.rate, layout, self.blocks, self.outputs


@operation
def absorb(
    permutation: HashPermutation, absorption: Absorption, rows: ElementData, form: Form
) -> ElementData:
    """The digests of rows, (n, length) to (n, outputs), in the form of the rows. On a device that
    is the form in which the prime computes."""
    prime = permutation.prime
    given = np.asarray(rows)
    canonical = given if form == "canonical" else elementwise.convert(prime, given, "canonical")
    columns = _to_columns(prime, np.asarray(canonical))
    found = _to_words(prime, _absorb_columns(permutation, absorption, columns, len(given)))
    return found if form == "canonical" else elementwise.convert(prime, found, form)


@absorb.by_steps
def _absorb_by_steps(
    permutation: HashPermutation, absorption: Absorption, rows: DeviceArray, form: Form
) -> DeviceArray:
    prime, device = permutation.prime, rows.storage.device
    count, outputs = rows.shape[0], absorption.outputs
    digests: DeviceArray = device.empty((count, outputs, *prime.element_shape), rows.dtype)
    if not count:
        return digests
    if absorption.permutations > _count_permutations(device, permutation):
        return _absorb_by_blocks(permutation, absorption, rows, digests)
    f64_limbs = with_f64_limbs(device, prime)
    lanes = choose_lanes(device.info, permutation, count)
    kernel = hash_kernel(
        prime,
        permutation.module,
        permutation.width,
        permutation.parameters,
        unrolled=_is_unrolled(device, permutation, lanes),
        f64_limbs=f64_limbs,
        lanes=lanes,
    )
    kind = hash_family(prime, permutation.module, permutation.width, f64_limbs=f64_limbs)
    options: dict[str, Any] = {"f64_limbs": f64_limbs, "module": permutation.module}
    width, state = permutation.width, absorption.initial
    initial = device.cache(
        ("initial state", prime, kind, permutation.module, width, state),
        lambda: device.put(encode_initial(prime, width, state, **options)),
    )
    constants = device.cache(
        ("constants of a permutation", permutation, kind),
        lambda: device.put(encode_numbers(prime, width, permutation.list_constants(), **options)),
    )
    packs = lanes == 1 and can_pack([rows, digests])
    vector = PACKED_ELEMENTS.get(kind, 1) if packs else 1
    push_words = absorption.push_words(vector)
    # Rows that one binding cannot hold are hashed in parts.
    row_bytes = prime.element_bytes * max(absorption.length, outputs)
    most = max(device.info.limits.max_storage_buffer_range // row_bytes, 1)
    device.submit(
        [
            _make_dispatch(
                kernel, (rows[part], initial, constants, digests[part]), push_words, lanes
            )
            for part in elementwise.split_axes((count,), most)
        ]
    )
    return digests


def _count_permutations(device: ArrayDevice, permutation: HashPermutation) -> float:
    """The permutations that an invocation finishes on the device."""
    needed = count_iterations(
        permutation.prime, permutation.module, permutation.width, permutation.parameters
    )
    most = get_profile(device.info).max_iterations
    if needed > most:
        raise DeviceLacksError(
            f"{permutation!r}: {device.info.name} ends the loops of an invocation after {most:,} "
            f"iterations, and a permutation takes up to {needed:,}. The host computes it"
        )
    return most // needed


def _absorb_by_blocks(
    permutation: HashPermutation, absorption: Absorption, rows: DeviceArray, digests: DeviceArray
) -> DeviceArray:
    """Absorb each block by dispatches of its own: the state stays in memory between them. For rows
    that an invocation does not finish."""
    prime, device, width = permutation.prime, rows.storage.device, permutation.width
    step = Absorption.truncate(width, width, width)
    state: DeviceArray = device.empty((len(rows), width, *prime.element_shape), rows.dtype)
    initial = [prime.in_form(value % prime.modulus) for value in absorption.initial]
    device.assign(state, words.from_ints(prime, initial))
    rate, first, taken = absorption.rate, absorption.first, 0
    for block in range(absorption.permutations):
        if block < absorption.blocks:
            part = rows[:, block * rate : (block + 1) * rate]
            count = part.shape[1]
            target = state[:, first : first + count]
            adds = absorption.mode == Mode.ADD and count > 0
            added = elementwise.combine(prime, "add", target, part) if adds else part
            device.assign(target, added)
            if absorption.mode == Mode.CLEAR:
                device.assign(state[:, first + count : first + rate], 0)
        state = _absorb_by_steps(permutation, step, state, prime.form)
        if block + 1 >= absorption.blocks:
            stop = min(taken + absorption.squeezed, absorption.outputs)
            begin = absorption.output_first
            device.assign(digests[:, taken:stop], state[:, begin : begin + stop - taken])
            taken = stop
    return digests


def _make_dispatch(
    kernel: Kernel, arrays: tuple[DeviceArray, ...], push_words: tuple[int, ...], lanes: int
) -> Dispatch:
    """The dispatch that absorbs rows, the first of the arrays, with `lanes` invocations for each.

    A work-group of groups is one subgroup where that has so many invocations: its barriers are the
    cheapest then, and few rows reach most multiprocessors.
    """
    rows = arrays[0]
    count, work_group, groups = rows.shape[0], None, None
    if lanes > 1:
        subgroup = rows.storage.device.info.limits.subgroup_size
        work_group = max(lanes, min(subgroup, MAX_GROUP_WORK_GROUP))
        groups = -(-count * lanes // work_group)
    return Dispatch(
        kernel,
        arrays,
        count,
        push_words,
        groups=groups,
        grid_stride=True,
        work_group=work_group,
        overwrites=True,
    )


def choose_lanes(info: DeviceInfo, permutation: HashPermutation, count: int) -> int:
    """The invocations that share a state: 1, or as many as a group has.

    A group takes fewer steps for a state than one invocation, but more work in all: some of its
    lanes are idle in partial rounds, or always. So groups absorb rows where they find invocations
    that would be idle otherwise. A CPU runs the invocations of a group one after another.
    """
    lanes = count_lanes(permutation.module, permutation.width)
    if lanes == 1 or info.kind == "cpu":
        return 1
    most = MAX_GROUPED_LOAD[permutation.module] * info.parallelism
    return lanes if count * lanes <= most else 1


def _is_unrolled(device: ArrayDevice, permutation: HashPermutation, lanes: int) -> bool:
    """Whether the state is in registers: states of small elements, except those of dense matrices
    on CPUs, and narrow ones of large elements on GPUs. Invocations of groups have no state in
    registers; without loops, sums of large elements would need more registers than there are."""
    if lanes > 1:
        return not is_wide(permutation.prime)
    if device.info.kind == "cpu":
        return permutation.module == "poseidon2" and not is_wide(permutation.prime)
    return not is_wide(permutation.prime) or permutation.width <= MAX_UNROLLED_WIDTH


def absorb_nothing(permutation: HashPermutation, absorption: Absorption) -> list[int]:
    """The digest of a row without elements."""
    return [int(each[0]) for each in _absorb_columns(permutation, absorption, [], 1)]


# --- columns on the host ---


def _choose_dtype(prime: Prime) -> npt.DTypeLike:
    return np.uint64 if prime.bits <= MAX_COLUMN_BITS else np.object_


def _to_columns(prime: Prime, canonical: Words) -> list[Column]:
    if _choose_dtype(prime) is np.uint64:
        return list(canonical.astype(np.uint64).T)
    return list(encoding.words_to_ints(prime, canonical).T)


def _to_words(prime: Prime, columns: list[Column]) -> Words:
    """Canonical words of shape (rows, columns)."""
    count, rows = len(columns), len(columns[0])
    if _choose_dtype(prime) is np.uint64:
        return np.stack(columns, axis=1).astype(prime.column_dtype)
    table = np.stack(columns, axis=1).reshape(-1)
    return words.from_ints(prime, table.tolist()).reshape(rows, count, *prime.element_shape)


def _absorb_columns(
    permutation: HashPermutation, absorption: Absorption, rows: list[Column], count: int
) -> list[Column]:
    """The columns of the digests of `count` rows."""
    modulus, dtype = permutation.prime.modulus, _choose_dtype(permutation.prime)
    state = [np.full(count, value % modulus, dtype) for value in absorption.initial]
    outputs = slice(absorption.output_first, absorption.output_first + absorption.squeezed)
    found = [] if absorption.blocks else state[outputs]
    for block in range(absorption.permutations):
        if block < absorption.blocks:
            for place in range(absorption.rate):
                at, lane = block * absorption.rate + place, absorption.first + place
                if at >= absorption.length:
                    if absorption.mode == Mode.CLEAR:
                        state[lane] = np.zeros(count, dtype)
                elif absorption.mode == Mode.ADD:
                    state[lane] = (state[lane] + rows[at]) % modulus
                else:
                    state[lane] = rows[at]
        state = permutation.permute(state)
        if block + 1 >= absorption.blocks:
            found += state[outputs]
    return found[: absorption.outputs]
