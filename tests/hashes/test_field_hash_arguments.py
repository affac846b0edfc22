"""Hash functions of field elements: parameters of the caller's, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError, GpuError
from gpu_executor.fields import BABYBEAR, BN254_FR, GOLDILOCKS, KOALABEAR, Field
from gpu_executor.hashes import Poseidon, Sponge, mimc7, mimc_sponge, poseidon, poseidon2, rpo
from gpu_executor.hashes.sponge import make_noir_sponge, make_padding_free_sponge

Matrix = list[list[int]]


def make_parameters(field: Field, width: int, rounds: tuple[int, int]) -> tuple[Matrix, Matrix]:
    """Random constants, and a Cauchy matrix, whose minors are not 0."""
    constants = field.random((sum(rounds), width), width).tolist()
    numbers = range(2, 2 + 2 * width)
    matrix = [[pow(x + y, -1, field.modulus) for y in numbers[width:]] for x in numbers[:width]]
    return constants, matrix


def permute_by_definition(
    field: Field, state: list[int], rounds: tuple[int, int], exponent: int, parameters: Any
) -> list[int]:
    """Poseidon as the paper defines it, with a dense matrix in every round."""
    constants, matrix = parameters
    modulus, (full, partial) = field.modulus, rounds
    for index, row in enumerate(constants):
        state = [(x + c) % modulus for x, c in zip(state, row, strict=True)]
        is_full = index < full // 2 or index >= full // 2 + partial
        raised = len(state) if is_full else 1
        state = [pow(x, exponent, modulus) if at < raised else x for at, x in enumerate(state)]
        state = [
            sum(m * x for m, x in zip(entries, state, strict=True)) % modulus for entries in matrix
        ]
    return state


SLOW = pytest.mark.slow
P61 = Field(2**61 - 1)
OWN = [
    pytest.param(BABYBEAR, 7, (4, 5), 7, id="babybear"),
    pytest.param(GOLDILOCKS, 3, (2, 0), 7, id="goldilocks-no-partial-rounds"),
    pytest.param(gx.fields.MERSENNE31, 24, (4, 3), 5, id="mersenne31"),
    pytest.param(P61, 2, (6, 1), 17, id="61-bits"),
    pytest.param(BN254_FR, 9, (4, 6), 5, id="bn254"),
    pytest.param(gx.fields.SECP256K1_FQ, 32, (2, 1), 5, id="256-bits", marks=SLOW),
    pytest.param(gx.fields.BLS12_381_FQ, 5, (4, 3), 5, id="381-bits", marks=SLOW),
]


@pytest.mark.parametrize(("field", "width", "rounds", "exponent"), OWN)
def test_poseidon_takes_parameters_of_the_callers(
    gpu: gx.PersistentVulkanBackend,
    field: Field,
    width: int,
    rounds: tuple[int, int],
    exponent: int,
) -> None:
    constants, matrix = parameters = make_parameters(field, width, rounds)
    hashed = Poseidon(field, width, rounds, constants, matrix, exponent=exponent)
    states = field.random((3, width), 1)
    states[0] = field.modulus - 1
    expected = [
        permute_by_definition(field, state, rounds, exponent, parameters)
        for state in states.tolist()
    ]
    assert hashed.permute(states).tolist() == expected
    assert hashed.permute(gpu.to_device(states)).tolist() == expected
    rows = states[:, 1:]
    assert hashed.hash(rows).tolist() == [
        permute_by_definition(field, [0, *row], rounds, exponent, parameters)[0]
        for row in rows.tolist()
    ]


def test_parameters_may_be_arrays_and_the_sponge_another() -> None:
    constants, matrix = make_parameters(BABYBEAR, 4, (4, 2))
    flat = [each for row in constants for each in row]
    hashed = Poseidon(BABYBEAR, 4, (4, 2), constants, matrix)
    sponge = make_padding_free_sponge(4, 2, 2)
    other = Poseidon(
        BABYBEAR,
        4,
        (4, 2),
        BABYBEAR.encode(flat),
        BABYBEAR.encode(matrix),
        sponge=sponge,
        compression="permutation",
        name="mine",
    )
    assert other.digest_shape == (2,) and other.name == "mine"
    states = BABYBEAR.random((2, 4), 1)
    assert other.permute(states).tolist() == hashed.permute(states).tolist()
    assert other.compress(states.reshape(4, 2)).tolist() == hashed.permute(states)[:, :2].tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"field": 7}, "field must be a Field"),
        ({"width": 1}, "width must be an integer from 2 to 32"),
        ({"rounds": (3, 2)}, "the first of them even"),
        ({"rounds": 8}, "the first of them even"),
        ({"constants": [1, 2]}, "constants has 2 elements; 6 x 3 are needed"),
        ({"matrix": [[1, 2, 3]] * 3}, "singular"),
        ({"matrix": BABYBEAR.zeros((3, 3))}, "matrix is an array of babybear"),
        ({"exponent": 3}, "no permutation of bn254_fr"),
        ({"exponent": 2.5}, "exponent must be an integer"),
        ({"sponge": 0}, "sponge is an int, not a Sponge"),
    ],
)
def test_wrong_parameters_are_refused(changed: dict[str, Any], message: str) -> None:
    constants, matrix = make_parameters(BN254_FR, 3, (4, 2))
    given: dict[str, Any] = {
        "field": BN254_FR,
        "width": 3,
        "rounds": (4, 2),
        "constants": constants,
        "matrix": matrix,
    }
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=message):
        Poseidon(**{**given, **changed})


def test_wrong_arrays_are_refused(gpu: gx.PersistentVulkanBackend) -> None:
    hashed, rows = poseidon(BN254_FR, 2), BN254_FR.random((4, 2), 1)
    with pytest.raises(ArgumentTypeError, match=r"rows must be a FieldArray of bn254_fr, not list"):
        hashed.hash([[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="rows is an array of babybear"):
        hashed.hash(BABYBEAR.zeros((4, 2)))
    with pytest.raises(ArgumentShapeError, match="rows of exactly 2 elements"):
        hashed.hash(BN254_FR.zeros((4, 3)))
    with pytest.raises(ArgumentShapeError, match="it must have 2 axes"):
        hashed.hash(BN254_FR.zeros(4))
    with pytest.raises(ArgumentShapeError, match="states of 3 elements"):
        hashed.permute(rows)
    with pytest.raises(ArgumentTypeError, match="leave device= out"):
        hashed.hash(gpu.to_device(rows), device=gpu)
    with pytest.raises(ArgumentTypeError, match="device is an executor or a backend"):
        hashed.hash(rows, device=3)  # type: ignore[arg-type]


def test_wrong_arities_are_refused() -> None:
    hashed, digests = poseidon(BN254_FR, 2), BN254_FR.random((4,), 1)
    with pytest.raises(ArgumentValueError, match=r"poseidon\(BN254_FR, inputs=4\)"):
        hashed.compress(digests, 4)
    with pytest.raises(ArgumentValueError, match="arity must be at least 2"):
        hashed.compress(digests, 1)
    with pytest.raises(ArgumentTypeError, match="arity must be an integer"):
        hashed.compress(digests, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match=r"it must be \(n \* 2"):
        hashed.compress(digests[:3])
    with pytest.raises(ArgumentShapeError, match="digests of 8 elements"):
        poseidon2(BABYBEAR).compress(BABYBEAR.zeros((4, 4)))


def test_unknown_hash_functions_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="there are plonky3 16, plonky3 24"):
        poseidon2(KOALABEAR, 16, "horizen")
    with pytest.raises(ArgumentValueError, match="width 4; there are plonky3 3, horizen 3, noir 4"):
        poseidon2(BN254_FR, 4)
    with pytest.raises(ArgumentValueError, match="variant must be one of"):
        poseidon2(BABYBEAR, 16, "poseidon")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="field must be a Field"):
        poseidon2(16)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="inputs must be an integer from 1 to 16"):
        poseidon(BN254_FR, 17)
    with pytest.raises(ArgumentValueError, match="outputs must be an integer from 1 to 3"):
        poseidon(BN254_FR, 2, outputs=4)
    with pytest.raises(ArgumentValueError, match="takes your own"):
        poseidon(BABYBEAR)
    with pytest.raises(ArgumentValueError, match="Plonky2's takes rows of any"):
        poseidon(GOLDILOCKS, 2)
    with pytest.raises(ArgumentValueError, match="key must be an element"):
        mimc7(-1)
    with pytest.raises(ArgumentValueError, match="outputs must be an integer from 1"):
        mimc_sponge(outputs=0)


def test_integers_of_numpy_are_integers() -> None:
    two: Any = np.int64(2)
    assert poseidon(BN254_FR, two, outputs=two) is poseidon(BN254_FR, 2, 2)
    assert mimc7(two) is mimc7(2)
    assert mimc_sponge(two, two) is mimc_sponge(2, 2)
    assert poseidon2(BABYBEAR, 8 * two) is poseidon2(BABYBEAR, 16)
    parameters = make_parameters(BABYBEAR, 2, (2, 1))
    assert Poseidon(BABYBEAR, two, (two, 1), *parameters, exponent=two + 5).width == 2


def test_arguments_of_other_types_are_refused() -> None:
    wrong: Any
    for wrong in ("no", [], 1):
        with pytest.raises(ArgumentTypeError, match="it must be True or False"):
            rpo(capacity_first=wrong)
    wrong = ["circomlib"]
    with pytest.raises(ArgumentValueError, match="variant must be 'circomlib' or 'plonky2'"):
        poseidon(BN254_FR, 2, variant=wrong)
    wrong = 16.0
    with pytest.raises(ArgumentValueError, match=r"no parameters for babybear of width 16\.0"):
        poseidon2(BABYBEAR, wrong)


def test_primes_without_an_exponent_are_refused() -> None:
    # Every odd number up to 63 has a factor in common with p - 1.
    field = Field(234576762718813941966541)
    with pytest.raises(ArgumentValueError, match=r"no x\^e with e from 3 to 63 is a permutation"):
        Poseidon(field, 2, (2, 0), *make_parameters(field, 2, (2, 0)))


def test_sponges_of_other_types_are_refused() -> None:
    parameters = make_parameters(BABYBEAR, 2, (2, 0))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"mode": "plus"}, "mode is 'plus'; it must be 'keep', 'clear' or 'add'"),
        ({"mode": 1}, "mode is 1; it must be 'keep', 'clear' or 'add'"),
        ({"rate": 1.0}, r"rate is 1\.0; it must be an integer"),
        ({"squeezed": "1"}, "squeezed is '1'; it must be an integer"),
    ]
    for options, message in cases:
        sponge = Sponge(**{"name": "own", "rate": 1, **options})
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=message):
            Poseidon(BABYBEAR, 2, (2, 0), *parameters, sponge=sponge)
    for begin in ((2, 1), (-1, 1), (0, 1.5)):
        sponge = Sponge("own", rate=1, begin=lambda _length, begin=begin: (begin,))  # type: ignore[misc]
        hashed = Poseidon(BABYBEAR, 2, (2, 0), *parameters, sponge=sponge)
        with pytest.raises(ArgumentValueError, match="begin gives"):
            hashed.hash(BABYBEAR.zeros((1, 3)))


def test_a_hash_function_names_its_source() -> None:
    assert "Plonky3 5dc50e51436a" in repr(poseidon2(BABYBEAR))
    assert "HorizenLabs/poseidon2 055bde3f4782" in repr(poseidon2(BABYBEAR, 16, "horizen"))
    assert "Miden crypto 475092a8476b" in repr(rpo())


def test_host_arrays_are_refused_while_a_graph_is_recorded(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    hashed, rows = poseidon2(BABYBEAR), BABYBEAR.random((4, 8), 1)

    @gx.graph
    def record(_x: Any) -> Any:
        return hashed.hash(rows, device=gpu)

    with pytest.raises(GpuError, match="a graph is being recorded"):
        record(gpu.to_device(rows))


def test_graphs_hash(gpu: gx.PersistentVulkanBackend) -> None:
    hashed = poseidon2(BABYBEAR)
    record = gx.graph(lambda x: hashed.compress(hashed.hash(x)))
    for seed in (1, 2):
        rows = BABYBEAR.random((4, 8), seed)
        expected = hashed.compress(hashed.hash(rows))
        assert record(gpu.to_device(rows)).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 5},
        {"rate": 2, "first": 2},
        {"rate": 2, "first": -1},
        {"rate": 0},
        {"rate": 2, "outputs": 4},
        {"rate": 2, "outputs": 2, "output_first": 2},
        {"rate": 2, "outputs": 5, "squeezed": 4},
        {"rate": 2, "outputs": 0},
        {"rate": 2, "outputs": 0, "squeezed": 1},
    ],
)
def test_sponges_that_do_not_fit_the_state_are_refused(options: dict[str, int]) -> None:
    parameters = make_parameters(BABYBEAR, 3, (8, 2))
    with pytest.raises(ArgumentValueError, match=r"not in a state of 3 elements|outputs is 0"):
        Poseidon(BABYBEAR, 3, (8, 2), *parameters, sponge=Sponge("own", **options))  # type: ignore[arg-type]


def test_initial_states_are_reduced(gpu: gx.PersistentVulkanBackend) -> None:
    parameters = make_parameters(BABYBEAR, 3, (8, 2))
    sponge = make_noir_sponge(3)  # begins with 2^64 times the length
    function = Poseidon(BABYBEAR, 3, (8, 2), *parameters, sponge=sponge)
    state = [1, 2, (2 << 64) % BABYBEAR.modulus]
    expected = permute_by_definition(BABYBEAR, state, (8, 2), 7, parameters)[:1]
    rows = BABYBEAR.encode([[1, 2]])
    assert function.hash(rows).tolist() == expected
    assert function.hash(rows, device=gpu).tolist() == expected


def test_parameters_of_other_shapes_are_refused() -> None:
    constants, matrix = make_parameters(BABYBEAR, 3, (8, 2))
    transposed = [list(each) for each in zip(*constants, strict=True)]
    with pytest.raises(ArgumentValueError, match=r"constants has the shape \(3, 10\)"):
        Poseidon(BABYBEAR, 3, (8, 2), transposed, matrix)
    flat = [each for row in constants for each in row]
    rows = BABYBEAR.encode([[1, 2]])
    expected = Poseidon(BABYBEAR, 3, (8, 2), constants, matrix).hash(rows).tolist()
    assert Poseidon(BABYBEAR, 3, (8, 2), flat, matrix).hash(rows).tolist() == expected
    rounds: Any
    for rounds in ((8, 2.5), (8.0, 2), (8, True)):
        with pytest.raises(ArgumentValueError, match="rounds must be"):
            Poseidon(BABYBEAR, 3, rounds, constants, matrix)
    compression: Any = "sum"
    with pytest.raises(ArgumentValueError, match="compression must be"):
        Poseidon(BABYBEAR, 3, (8, 2), constants, matrix, compression=compression)
