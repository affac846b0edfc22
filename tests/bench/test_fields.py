"""The benchmarks of fields and transforms, with sizes that take no time: what they measure, that
they check it, and what they say."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gpu_executor as gx
from gpu_executor.bench import (
    draws,
    fields,
    product_peers,
    resident,
    transform_peers,
    transforms,
)
from gpu_executor.bench.fields import Sizes
from gpu_executor.bench.resident import Pace
from gpu_executor.bench.transforms import Size
from gpu_executor.cli.main import commands
from gpu_executor.device_info import DeviceInfo, Kind, MemoryHeap
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, SECP256K1, Field
from gpu_executor.primes import NAMED, Prime, words
from gpu_executor.vulkan.instance import find_devices

QUICK = Pace(warm_up=0, a_round=0, rounds=2)
SMALL = Sizes(streamed=5000, inverted=4200, chains=600, length=4)
FEW = (BLS12_381_FR, SECP256K1, BABYBEAR)
SIZES = [Size(3), Size(5), Size(2, rows=3)]
DUELS = transform_peers.Sizes(babybear=5, goldilocks=3, blobs=2)


def device(name: str, kind: Kind) -> DeviceInfo:
    return dataclasses.replace(find_devices()[0], name=name, kind=kind)


def exact_ntt(modulus: int, root: int, values: list[int]) -> list[int]:
    """By halves: the values at the powers of a root of unity."""
    if len(values) == 1:
        return values
    even, odd = (exact_ntt(modulus, root * root % modulus, values[part::2]) for part in (0, 1))
    twisted = [pow(root, at, modulus) * value for at, value in enumerate(odd)]
    pairs = list(zip(even, twisted, strict=True))
    return [(a + b) % modulus for a, b in pairs] + [(a - b) % modulus for a, b in pairs]


def bit_reversed(values: list[int]) -> list[int]:
    bits = len(values).bit_length() - 1
    return [values[int(f"{at:0{bits}b}"[::-1], 2)] for at in range(len(values))]


def galois_field(modulus: int, *, primitive_element: int, verify: bool) -> Any:
    """As much of one as is used."""
    assert not verify

    class Elements(np.ndarray[Any, Any]):
        def __mul__(self, other: Any) -> Any:
            product = self.view(np.ndarray) * other.view(np.ndarray)
            return (product % modulus).view(Elements)

        def ntt(self) -> Any:
            root = pow(primitive_element, (modulus - 1) // len(self), modulus)
            return np.array(exact_ntt(modulus, root, self.tolist()), object)

    def make(values: Any) -> Any:
        return np.asarray(values, object).view(Elements)

    make.dtypes = [np.dtype(object)]  # type: ignore[attr-defined]
    return make


def read_setup(file: str, precompute: int) -> str:
    g1, g2, *points = Path(file).read_text().split()
    assert (int(g1), int(g2), len(points), precompute) == (8, 65, 8 + 65 + 8, 0)
    assert {len(point) for point in points} == {96, 192}
    return "setup"


def cells(blob: bytes, setup: str) -> list[bytes]:
    """A blob of 8 elements extended to 16, in cells of 4."""
    assert setup == "setup"
    p, root = BLS12_381_FR.modulus, BLS12_381_FR.prime.root_of_unity(4)
    values = [int.from_bytes(blob[at : at + 32]) for at in range(0, len(blob), 32)]
    there = exact_ntt(p, pow(root, -2, p), bit_reversed(values))
    coefficients = [value * pow(8, -1, p) % p for value in there] + [0] * 8
    extended = b"".join(v.to_bytes(32) for v in bit_reversed(exact_ntt(p, root, coefficients)))
    return [extended[at : at + 128] for at in range(0, len(extended), 128)]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for packages that tests do without, and blobs that are short."""
    galois = SimpleNamespace(GF=galois_field, ntt=lambda x: x.ntt())
    ckzg = SimpleNamespace(load_trusted_setup=read_setup, compute_cells=cells)
    monkeypatch.setitem(sys.modules, "galois", galois)
    monkeypatch.setitem(sys.modules, "ckzg", ckzg)
    monkeypatch.setattr(transform_peers, "LOG_BLOB", 3)
    monkeypatch.setattr(transform_peers, "BLOB", 8)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("galois", "flint", "ckzg"):
        monkeypatch.setitem(sys.modules, name, None)


def test_every_named_field_is_measured() -> None:
    assert len(fields.FIELDS) == 15
    assert {field.prime for field in fields.FIELDS} == set(NAMED.values())


def test_streams_are_held_against_copies(gpu: gx.PersistentVulkanBackend) -> None:
    found = list(fields.rows(gpu, SMALL, FEW, QUICK))
    assert [(row.field, row.bits) for row in found] == [
        ("bls12_381_fr", 255),
        ("secp256k1", 256),
        ("babybear", 31),
    ]
    for row, element in zip(found, (32, 32, 4), strict=True):
        assert (row.elements, row.inverted) == (5000, 4200)
        for streamed, arrays in ((row.products, 3), (row.squares, 2), (row.additions, 3)):
            moved = arrays * element * streamed.per_second
            assert streamed.bytes_per_second == pytest.approx(moved)
            assert streamed.of_copy == pytest.approx(moved / row.copy_bytes_per_second)
        others = row.sums_per_second, row.dots_per_second, row.inversion_ms, row.squares_in_chains
        assert min(others) > 0
    squares = [fields._squares(field, fields.GPU_SIZES) for field in FEW]
    assert squares == [253, 254, 29]  # 2^n below p - 1, or fewer would do
    # A kernel that chains products is there for primes that leave a bit of their words free.
    assert [row.products_in_chains is None for row in found] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("sum", lambda field, x: field.power(x[:1], 1).reshape(), "wrong sum"),
        ("dot", lambda field, x, _: field.power(x[:1], 1).reshape(), "wrong dot product"),
        ("inverse", lambda _field, x: x, "wrong inverses"),
        ("power", lambda _field, x, _exponent: x, "wrong powers"),
    ],
)
def test_wrong_results_over_whole_arrays_are_noticed(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    wrong: Callable[..., Any],
    said: str,
) -> None:
    monkeypatch.setattr(Field, name, wrong)
    with pytest.raises(AssertionError, match=f"mersenne31: {said}"):
        list(fields.rows(gpu, SMALL, [MERSENNE31], QUICK))


def test_wrong_products_in_chains_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gx.PersistentVulkanBackend, "run", lambda _gpu, _kernel, a, _b: a)
    with pytest.raises(AssertionError, match="bls12_381_fr: wrong chain"):
        list(fields.rows(gpu, SMALL, [BLS12_381_FR], QUICK))


@pytest.mark.parametrize("operation", fields.OPERATIONS)
def test_wrong_streamed_results_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setitem(fields.OPERATIONS, operation, lambda a, *_: a + 1)
    with pytest.raises(AssertionError, match=f"babybear: wrong {operation}"):
        list(fields.rows(gpu, SMALL, [BABYBEAR], QUICK))


def test_aims_of_fields_are_those_of_an_h200(gpu: gx.PersistentVulkanBackend) -> None:
    (row,) = fields.rows(gpu, SMALL, [BABYBEAR], QUICK)
    streamed = dataclasses.replace(row.additions, bytes_per_second=3.4e12)
    fq, fr = (
        dataclasses.replace(
            row,
            field=name,
            bits=bits,
            products_in_chains=54e9,
            inversion_ms=0.9,
            additions=streamed,
        )
        for name, bits in (("bls12_381_fq", 381), ("bls12_381_fr", 255))
    )
    found = fields.aims([row, fq, fr], device("NVIDIA H200", "discrete"))
    assert [(aim.what, aim.met) for aim in found] == [
        ("381-bit products in chains", True),
        ("255-bit products in chains", True),
        ("381-bit additions, streamed", True),
        ("255-bit inverses, 4,200", False),
    ]
    assert fields.aims([fq, fr], device("some other", "discrete")) == []
    assert fields.aims([row], device("NVIDIA H200", "discrete")) == []


def test_sizes_suit_the_device() -> None:
    assert fields.sizes_for(device("llvmpipe", "cpu")).streamed == 1 << 16
    small, large = (
        dataclasses.replace(device("a GPU", "discrete"), heaps=(MemoryHeap(size, True, ()),))
        for size in (8 << 30, 80 << 30)
    )
    assert fields.sizes_for(small).streamed == 1 << 22
    assert fields.sizes_for(large).streamed == 1 << 24
    assert [size.log_n for size in transforms.sizes_for(large)] == [*range(10, 25, 2), 13]
    assert transforms.sizes_for(large)[-1].elements == 1 << 22
    on_cpu = transforms.sizes_for(device("llvmpipe", "cpu"))
    assert on_cpu == [Size(10), Size(12), Size(14), Size(16), Size(13, 8)]
    longer = transforms.sizes_for(device("llvmpipe", "cpu"), 17)
    assert longer[-3:] == [Size(16), Size(17), Size(13, 8)]


def test_transforms_are_measured_in_every_way(gpu: gx.PersistentVulkanBackend) -> None:
    ((*found,), *more) = transforms.rows(gpu, SIZES, [GOLDILOCKS, BABYBEAR], QUICK)
    assert [(row.field, row.log_n, row.rows) for row in found] == [
        ("goldilocks", 3, 1),
        ("goldilocks", 5, 1),
        ("goldilocks", 2, 3),
    ]
    assert [[row.field for row in rows] for rows in more] == [["babybear"] * 3]
    for row in found:
        assert min(dataclasses.astuple(row)[3:]) > 0
    assert transforms.growth(found) == pytest.approx(
        [
            row.to_natural_ms / work * (32 * 5) / found[1].to_natural_ms
            for row, work in zip(found, (8 * 3, 32 * 5, 3 * 4 * 2), strict=True)
        ]
    )


@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_wrong_transforms_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    right = Field.ntt

    def wrong(field: Field, x: Any, *, order_out: Any = "natural") -> Any:
        return field.add(x, 1) if order_out == order else right(field, x, order_out=order_out)

    monkeypatch.setattr(Field, "ntt", wrong)
    with pytest.raises(AssertionError, match=r"babybear, 2\^3: wrong value"):
        list(transforms.rows(gpu, SIZES, [BABYBEAR], QUICK))


def test_wrong_inverses_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "intt", lambda _field, x, **_: x)
    with pytest.raises(AssertionError, match=r"babybear, 2\^3: not what it was"):
        list(transforms.rows(gpu, SIZES, [BABYBEAR], QUICK))


def test_aims_of_transforms(gpu: gx.PersistentVulkanBackend) -> None:
    def row(field: str, log_n: int, took: float) -> transforms.Row:
        return transforms.Row(field, log_n, 1, took, 2 * took, took, took, 11)

    rows = [
        row("bls12_381_fr", 20, 0.4),
        row("bls12_381_fr", 22, 1.8),
        row("goldilocks", 20, 0.1),
        row("goldilocks", 22, 0.7),
    ]
    found = transforms.aims(rows, device("NVIDIA H200", "discrete"))
    assert [(aim.what, aim.met) for aim in found] == [
        ("bls12_381_fr, 2^20, to reversed order", True),
        ("bls12_381_fr, 2^20, to natural order", False),
        ("bls12_381_fr, 2^22, to reversed order", True),
        ("bls12_381_fr, 2^22, to natural order", False),
        ("bls12_381_fr, 2^22, NumPy to NumPy", True),
        ("goldilocks, 2^22, to reversed order", False),
        ("goldilocks, 2^22, to natural order", False),
        ("bls12_381_fr, n log n at 2^22 over the cheapest", True),
        ("goldilocks, n log n at 2^22 over the cheapest", False),
    ]
    assert len(transforms.aims(rows, device("llvmpipe", "cpu"))) == 2


@pytest.mark.usefixtures("packages")
def test_products_of_packages_are_the_same_and_timed(gpu: gx.PersistentVulkanBackend) -> None:
    found = product_peers.compare(gpu, 300, turns=2)
    assert (found.count, found.absent) == (300, [])
    assert [(way.name, way.kind) for way in found.ways] == [
        ("gpu.run", "words"),
        ("Field.mul", "words"),
        ("Field.mul", "integers"),
        ("NumPy", "integers"),
        ("galois", "elements"),
        ("python-flint", "elements"),
    ]
    assert found.ways[0].slower == 1
    for way in found.ways:
        assert way.per_second == pytest.approx(300 / way.milliseconds * 1e3)
    aims = product_peers.aims(found, device("llvmpipe", "cpu"))
    assert [(aim.measured, aim.aim) for aim in aims] == [(way.slower, 5) for way in found.ways[4:]]
    assert product_peers.aims(found, device("NVIDIA H200", "discrete")) == []


@pytest.mark.usefixtures("no_packages")
def test_packages_that_are_not_there_are_named(gpu: gx.PersistentVulkanBackend) -> None:
    found = product_peers.compare(gpu, 10, turns=2)
    assert (len(found.ways), found.absent) == (4, ["galois", "python-flint"])
    assert transform_peers.compare(gpu, DUELS, turns=2) == ([], ["galois", "ckzg"])


@pytest.mark.usefixtures("packages")
def test_other_products_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "mul", lambda _field, x, _y: x)
    with pytest.raises(AssertionError, match=r"Field\.mul on words: other products than gpu\.run"):
        product_peers.compare(gpu, 10)


@pytest.mark.usefixtures("packages")
def test_transforms_of_packages_are_the_same_and_timed(gpu: gx.PersistentVulkanBackend) -> None:
    duels, absent = transform_peers.compare(gpu, DUELS, turns=2)
    assert absent == []
    assert [(duel.package, duel.what) for duel in duels] == [
        ("galois", "babybear, 2^5"),
        ("galois", "goldilocks, 2^3"),
        ("ckzg", "2 blobs extended"),
    ]
    assert all(min(duel.theirs_ms, duel.ours_ms, duel.faster) > 0 for duel in duels)


@pytest.mark.usefixtures("packages")
def test_other_transforms_are_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "ntt", lambda _field, x: x)
    with pytest.raises(AssertionError, match="galois: another outcome of babybear, 2\\^5"):
        transform_peers.compare(gpu, DUELS)


@pytest.mark.parametrize("prime", [BLS12_381_FR.prime, GOLDILOCKS.prime, BABYBEAR.prime])
def test_drawn_elements_are_below_the_modulus(prime: Prime) -> None:
    elements = draws.drawn(prime, (20, 50), 1)
    assert elements.shape == (20, 50, *prime.element_shape)
    assert words.first_not_below(prime, elements) is None
    assert len(set(words.to_ints(prime, elements))) == 1000
    assert np.array_equal(elements, draws.drawn(prime, (20, 50), 1))
    assert not np.array_equal(elements, draws.drawn(prime, (20, 50), 2))


def test_a_round_is_filled_by_what_one_took_alone(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight seconds hold four calls of two; later ones are slower, and the median counts."""
    clock, calls = [0.0], []

    def call() -> None:
        calls.append(clock[0])
        clock[0] += 2 if len(calls) <= 6 else 3

    monkeypatch.setattr(resident, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    pace = Pace(warm_up=0, a_round=8, rounds=3)
    assert resident.calls_seconds(gpu, [call], pace) == [3]
    assert len(calls) == 2 + 3 * 4


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


@pytest.mark.usefixtures("packages")
def test_the_command_for_fields_prints_tables_and_writes_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, compare = fields.rows, product_peers.compare
    few = GOLDILOCKS, BABYBEAR
    monkeypatch.setattr(fields, "rows", lambda gpu, _sizes: rows(gpu, SMALL, few, QUICK))
    monkeypatch.setattr(product_peers, "compare", lambda gpu, count: compare(gpu, count, 2))
    file = tmp_path / "figures.json"
    shown = run("bench", "fields", "--products", "200", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output  # as rich cuts what is too wide
    assert "5,000 elements" in shown.output and "4,200 inverses" in shown.output
    written = json.loads(file.read_text())
    assert written["device"]["uuid"] == find_devices()[0].uuid
    assert [row["field"] for row in written["rows"]] == ["goldilocks", "babybear"]
    assert written["rows"][0]["products_in_chains"] is None
    assert (written["products"]["count"], len(written["products"]["ways"])) == (200, 6)
    on_cpu = find_devices()[0].kind == "cpu"
    assert len(written["aims"]) == (2 if on_cpu else 0)


@pytest.mark.usefixtures("no_packages")
def test_the_command_for_transforms_prints_tables_and_writes_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = transforms.rows
    few = GOLDILOCKS, BABYBEAR
    monkeypatch.setattr(transforms, "rows", lambda gpu, _sizes: rows(gpu, SIZES, few, QUICK))
    file = tmp_path / "figures.json"
    shown = run("bench", "ntt", "--largest", "12", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output
    assert "3 x 2^2" in shown.output and "transforms in babybear" in shown.output
    assert "galois is not installed" in shown.output and "ckzg is not installed" in shown.output
    written = json.loads(file.read_text())
    assert [row["log_n"] for row in written["rows"]] == [3, 5, 2] * 2
    assert [row["growth"] for row in written["rows"]][1::3] == [1, 1]
    assert (written["duels"], written["absent"]) == ([], ["galois", "ckzg"])
    assert [aim["unit"] for aim in written["aims"]][-2:] == ["x", "x"]
