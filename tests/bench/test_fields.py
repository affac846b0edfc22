"""The benchmarks of fields and transforms, with small sizes: what they measure, that they check it,
and what they report."""

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
    fields,
    product_comparison,
    timing,
    transform_comparison,
    transforms,
)
from gpu_executor.bench.fields import FieldSizes
from gpu_executor.bench.inputs import draw_elements
from gpu_executor.bench.timing import TimingBudget
from gpu_executor.bench.transform_comparison import ComparisonSizes
from gpu_executor.bench.transforms import TransformRow, TransformSize
from gpu_executor.cli.commands import commands
from gpu_executor.device_info import DeviceInfo, Kind, MemoryHeap
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, SECP256K1_FQ, Field
from gpu_executor.primes import NAMED, Prime, words
from gpu_executor.vulkan.instance import find_devices
from tests.support.benchmark_files import read_tables

QUICK = TimingBudget(warm_up=0, round=0, max_rounds=2)
SMALL = FieldSizes(streamed=5000, inverted=4200, chains=600, length=4)
TWO_WORDS = Field(2**61 - 31)
FEW = (TWO_WORDS, BABYBEAR)
"""Fields whose pipelines compile quickly."""
SIZES = [TransformSize(3), TransformSize(5), TransformSize(2, rows=3)]
COMPARED = ComparisonSizes(babybear=5, goldilocks=3, blobs=2)


def make_device(name: str, kind: Kind) -> DeviceInfo:
    return dataclasses.replace(find_devices()[0], name=name, kind=kind)


def exact_ntt(modulus: int, root: int, values: list[int]) -> list[int]:
    """The values at the powers of a root of unity, by the recursive radix-2 transform."""
    if len(values) == 1:
        return values
    even, odd = (exact_ntt(modulus, root * root % modulus, values[part::2]) for part in (0, 1))
    odd = [pow(root, at, modulus) * value for at, value in enumerate(odd)]
    pairs = list(zip(even, odd, strict=True))
    return [(a + b) % modulus for a, b in pairs] + [(a - b) % modulus for a, b in pairs]


def reverse_bits(values: list[int]) -> list[int]:
    bits = len(values).bit_length() - 1
    return [values[int(f"{at:0{bits}b}"[::-1], 2)] for at in range(len(values))]


def make_galois_field(modulus: int, *, primitive_element: int, verify: bool) -> Any:
    """As much of a field of galois as the benchmarks use."""
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


def load_setup(file: str, precompute: int) -> str:
    g1, g2, *points = Path(file).read_text().split()
    assert (int(g1), int(g2), len(points), precompute) == (8, 65, 8 + 65 + 8, 0)
    assert {len(point) for point in points} == {96, 192}
    return "setup"


def compute_cells(blob: bytes, setup: str) -> list[bytes]:
    """A blob of 8 elements extended to 16, in cells of 4."""
    assert setup == "setup"
    p, root = BLS12_381_FR.modulus, BLS12_381_FR.prime.root_of_unity(4)
    values = [int.from_bytes(blob[at : at + 32]) for at in range(0, len(blob), 32)]
    there = exact_ntt(p, pow(root, -2, p), reverse_bits(values))
    coefficients = [value * pow(8, -1, p) % p for value in there] + [0] * 8
    extended = b"".join(v.to_bytes(32) for v in reverse_bits(exact_ntt(p, root, coefficients)))
    return [extended[at : at + 128] for at in range(0, len(extended), 128)]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Substitutes for packages that the tests do not install, and short blobs."""
    galois = SimpleNamespace(GF=make_galois_field, ntt=lambda x: x.ntt())
    ckzg = SimpleNamespace(load_trusted_setup=load_setup, compute_cells=compute_cells)
    monkeypatch.setitem(sys.modules, "galois", galois)
    monkeypatch.setitem(sys.modules, "ckzg", ckzg)
    monkeypatch.setattr(transform_comparison, "LOG_BLOB", 3)
    monkeypatch.setattr(transform_comparison, "BLOB", 8)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("galois", "flint", "ckzg"):
        monkeypatch.setitem(sys.modules, name, None)


def test_every_named_field_is_measured() -> None:
    assert len(fields.FIELDS) == 15
    assert {field.prime for field in fields.FIELDS} == set(NAMED.values())


def test_streamed_operations_are_compared_with_copies(gpu: gx.PersistentVulkanBackend) -> None:
    rows = list(fields.measure_fields(gpu, SMALL, FEW, QUICK))
    assert [(row.field, row.bits) for row in rows] == [
        (TWO_WORDS.name, 61),
        ("babybear", 31),
    ]
    for row, element in zip(rows, (8, 4), strict=True):
        assert (row.elements, row.inverted) == (5000, 4200)
        for streamed, arrays in ((row.products, 3), (row.squares, 2), (row.additions, 3)):
            moved = arrays * element * streamed.per_second
            assert streamed.bytes_per_second == pytest.approx(moved)
            assert streamed.of_copy == pytest.approx(moved / row.copy_bytes_per_second)
        others = row.sums_per_second, row.dots_per_second, row.inversion_ms, row.squares_in_chains
        assert min(others) > 0
    named = BLS12_381_FR, SECP256K1_FQ, BABYBEAR
    squares = [fields.count_squares(field, fields.GPU_SIZES.length) for field in named]
    assert squares == [253, 254, 29]  # 2^n is below p - 1
    # Products are chained only for primes that leave the highest bit of their words free.
    assert [row.products_in_chains is None for row in rows] == [False, True]
    assert fields.measure_product_chains(gpu, SECP256K1_FQ, SMALL) is None


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("sum", lambda field, x: field.power(x[:1], 1).reshape(), "wrong sum"),
        ("dot", lambda field, x, _: field.power(x[:1], 1).reshape(), "wrong dot product"),
        ("inverse", lambda _field, x: x, "wrong inverses"),
        ("power", lambda _field, x, _exponent: x, "wrong powers"),
    ],
)
def test_wrong_reductions_inverses_and_powers_are_detected(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    wrong: Callable[..., Any],
    message: str,
) -> None:
    monkeypatch.setattr(Field, name, wrong)
    with pytest.raises(AssertionError, match=f"mersenne31: {message}"):
        list(fields.measure_fields(gpu, SMALL, [MERSENNE31], QUICK))


def test_wrong_products_in_chains_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gx.PersistentVulkanBackend, "run", lambda _gpu, _kernel, a, _b: a)
    with pytest.raises(AssertionError, match=f"{TWO_WORDS.name}: wrong chain"):
        list(fields.measure_fields(gpu, SMALL, [TWO_WORDS], QUICK))


@pytest.mark.parametrize("operation", fields.STREAMED_OPERATIONS)
def test_wrong_streamed_results_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setitem(fields.STREAMED_OPERATIONS, operation, lambda a, *_: a + 1)
    with pytest.raises(AssertionError, match=f"babybear: wrong {operation}"):
        list(fields.measure_fields(gpu, SMALL, [BABYBEAR], QUICK))


def test_fields_have_targets_on_an_h200_only(gpu: gx.PersistentVulkanBackend) -> None:
    (row,) = fields.measure_fields(gpu, SMALL, [BABYBEAR], QUICK)
    streamed = dataclasses.replace(row.additions, bytes_per_second=3.4e12)
    fq, fr = (
        dataclasses.replace(
            row,
            field=name,
            bits=bits,
            products_in_chains=54e9,
            squares_in_chains=72e9,
            inversion_ms=0.9,
            additions=streamed,
        )
        for name, bits in (("bls12_381_fq", 381), ("bls12_381_fr", 255))
    )
    targets = fields.check_targets([row, fq, fr], make_device("NVIDIA H200", "discrete"))
    assert [(target.what, target.met) for target in targets] == [
        ("381-bit products in chains", True),
        ("255-bit products in chains", True),
        ("381-bit squares in chains", True),
        ("255-bit squares in chains", False),
        ("381-bit additions, streamed", True),
        ("255-bit inverses, 4,200", False),
    ]
    assert fields.check_targets([fq, fr], make_device("some other", "discrete")) == []
    assert fields.check_targets([row], make_device("NVIDIA H200", "discrete")) == []


def test_sizes_depend_on_the_device() -> None:
    assert fields.choose_sizes(make_device("llvmpipe", "cpu")).streamed == 1 << 16
    small, large = (
        dataclasses.replace(make_device("a GPU", "discrete"), heaps=(MemoryHeap(size, True, ()),))
        for size in (8 << 30, 80 << 30)
    )
    assert fields.choose_sizes(small).streamed == 1 << 22
    assert fields.choose_sizes(large).streamed == 1 << 24
    assert [size.log_n for size in transforms.choose_sizes(large)] == [*range(10, 25, 2), 13]
    assert transforms.choose_sizes(large)[-1].elements == 1 << 22
    on_cpu = transforms.choose_sizes(make_device("llvmpipe", "cpu"))
    assert on_cpu == [
        TransformSize(10),
        TransformSize(12),
        TransformSize(14),
        TransformSize(16),
        TransformSize(13, 8),
    ]
    longer = transforms.choose_sizes(make_device("llvmpipe", "cpu"), 17)
    assert longer[-3:] == [TransformSize(16), TransformSize(17), TransformSize(13, 8)]


@pytest.fixture(scope="module")
def transform_rows(gpu: gx.PersistentVulkanBackend) -> list[TransformRow]:
    (rows,) = transforms.measure_transforms(gpu, SIZES, [BABYBEAR], QUICK)
    return rows


def test_every_kind_of_transform_is_measured(transform_rows: list[TransformRow]) -> None:
    rows = transform_rows
    assert [(row.field, row.log_n, row.rows) for row in rows] == [
        ("babybear", 3, 1),
        ("babybear", 5, 1),
        ("babybear", 2, 3),
    ]
    for row in rows:
        assert min(dataclasses.astuple(row)[3:]) > 0
    assert transforms.compute_growth(rows) == pytest.approx(
        [
            row.to_natural_ms / work * (32 * 5) / rows[1].to_natural_ms
            for row, work in zip(rows, (8 * 3, 32 * 5, 3 * 4 * 2), strict=True)
        ]
    )


@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_wrong_transforms_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    right = Field.ntt

    def wrong(field: Field, x: Any, *, order_out: Any = "natural", **options: Any) -> Any:
        if order_out == order:
            return field.add(x, 1)
        return right(field, x, order_out=order_out, **options)

    monkeypatch.setattr(Field, "ntt", wrong)
    with pytest.raises(AssertionError, match=r"babybear, 2\^3: wrong value"):
        list(transforms.measure_transforms(gpu, SIZES, [BABYBEAR], QUICK))


def test_wrong_inverse_transforms_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "intt", lambda _field, x, **_: x)
    with pytest.raises(
        AssertionError, match=r"babybear, 2\^3: wrong inverse from bit-reversed order"
    ):
        list(transforms.measure_transforms(gpu, SIZES, [BABYBEAR], QUICK))


def test_transforms_have_times_as_targets_on_an_h200_and_growth_everywhere() -> None:
    def make_row(field: str, log_n: int, taken: float) -> TransformRow:
        return TransformRow(field, log_n, 1, taken, 2 * taken, taken, taken, 7, 6, *[taken] * 10)

    rows = [
        make_row("bls12_381_fr", 20, 0.2),
        make_row("bls12_381_fr", 22, 0.9),
        make_row("goldilocks", 20, 0.04),
        make_row("goldilocks", 22, 0.3),
    ]
    targets = transforms.check_targets(rows, make_device("NVIDIA H200", "discrete"))
    assert [(target.what, target.met) for target in targets] == [
        ("bls12_381_fr, 2^20, to reversed order", True),
        ("bls12_381_fr, 2^22, to reversed order", True),
        ("bls12_381_fr, 2^22, to natural order", False),
        ("bls12_381_fr, 2^22, NumPy to NumPy", True),
        ("bls12_381_fr, 2^22, mapped to mapped", False),
        ("goldilocks, 2^20, to reversed order", True),
        ("goldilocks, 2^22, to reversed order", False),
        ("bls12_381_fr, time / n log n at 2^22 over least", True),
        ("goldilocks, time / n log n at 2^22 over least", False),
    ]
    assert len(transforms.check_targets(rows, make_device("llvmpipe", "cpu"))) == 2


@pytest.mark.usefixtures("packages")
def test_products_of_other_packages_are_the_same_and_timed(gpu: gx.PersistentVulkanBackend) -> None:
    compared = product_comparison.compare_products(gpu, 300, rounds=2)
    assert (compared.count, compared.absent) == (300, [])
    assert [(each.name, each.kind) for each in compared.ways] == [
        ("gpu.run", "words"),
        ("Field.mul", "words"),
        ("Field.mul", "integers"),
        ("NumPy", "integers"),
        ("galois", "elements"),
        ("python-flint", "elements"),
    ]
    assert compared.ways[0].slower == 1
    for each in compared.ways:
        assert each.per_second == pytest.approx(300 / each.milliseconds * 1e3)
    targets = product_comparison.check_targets(compared, make_device("llvmpipe", "cpu"))
    assert [(target.measured, target.aim) for target in targets] == [
        (each.slower, 5) for each in compared.ways[4:]
    ]
    h200 = make_device("NVIDIA H200", "discrete")
    assert product_comparison.check_targets(compared, h200) == []


@pytest.mark.usefixtures("no_packages")
def test_packages_that_are_not_installed_are_named(gpu: gx.PersistentVulkanBackend) -> None:
    products = product_comparison.compare_products(gpu, 10, rounds=2)
    assert (len(products.ways), products.absent) == (4, ["galois", "python-flint"])
    compared = transform_comparison.compare_transforms(gpu, COMPARED, rounds=2)
    assert compared == ([], ["galois", "ckzg"])


@pytest.mark.usefixtures("packages")
def test_products_that_differ_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "mul", lambda _field, x, _y: x)
    differ = r"Field\.mul on words: products differ from those of gpu\.run"
    with pytest.raises(AssertionError, match=differ):
        product_comparison.compare_products(gpu, 10)


@pytest.mark.usefixtures("packages")
def test_transforms_of_other_packages_are_the_same_and_timed(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    compared, absent = transform_comparison.compare_transforms(gpu, COMPARED, rounds=2)
    assert absent == []
    assert [(each.package, each.what) for each in compared] == [
        ("galois", "babybear, 2^5"),
        ("galois", "goldilocks, 2^3"),
        ("ckzg", "2 blobs extended"),
    ]
    assert all(min(each.theirs_ms, each.ours_ms, each.faster) > 0 for each in compared)


@pytest.mark.usefixtures("packages")
def test_transforms_that_differ_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Field, "ntt", lambda _field, x: x)
    with pytest.raises(AssertionError, match=r"galois: the results of babybear, 2\^5 differ"):
        transform_comparison.compare_transforms(gpu, COMPARED)


@pytest.mark.parametrize("prime", [BLS12_381_FR.prime, GOLDILOCKS.prime, BABYBEAR.prime])
def test_drawn_elements_are_below_the_modulus(prime: Prime) -> None:
    elements = draw_elements(prime, (20, 50), 1)
    assert elements.shape == (20, 50, *prime.element_shape)
    assert words.first_not_below(prime, elements) is None
    assert len(set(words.to_ints(prime, elements))) == 1000
    assert np.array_equal(elements, draw_elements(prime, (20, 50), 1))
    assert not np.array_equal(elements, draw_elements(prime, (20, 50), 2))


def test_single_calls_decide_how_many_fill_a_round(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 8 s holds four calls of 2 s; later calls are slower, and the median counts."""
    clock, calls = [0.0], []

    def call() -> None:
        calls.append(clock[0])
        clock[0] += 2 if len(calls) <= 6 else 3

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    budget = TimingBudget(warm_up=0, round=8, max_rounds=3)
    assert timing.time_resident(gpu, [call], budget)[0] == 3.0
    assert len(calls) == 2 + 3 * 4


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


@pytest.mark.usefixtures("packages")
def test_the_command_for_fields_prints_tables_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measure, compare = fields.measure_fields, product_comparison.compare_products
    few = GOLDILOCKS, BABYBEAR
    monkeypatch.setattr(fields, "measure_fields", lambda gpu, *_: measure(gpu, SMALL, few, QUICK))
    monkeypatch.setattr(
        product_comparison, "compare_products", lambda gpu, count: compare(gpu, count, 2)
    )
    file = tmp_path / "fields.json"
    shown = run("bench", "fields", "--products", "200", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output  # which rich prints where it truncates
    assert "5,000 elements" in shown.output and "4,200 inverses" in shown.output
    assert json.loads(file.read_text())["device"]["uuid"] == find_devices()[0].uuid
    written = read_tables(file, "fields")
    assert [row["field"] for row in written["rows"]] == ["goldilocks", "babybear"]
    assert written["rows"][0]["products_in_chains"] is None
    assert (written["products"]["count"], len(written["products"]["ways"])) == (200, 6)
    on_cpu = find_devices()[0].kind == "cpu"
    assert len(written["aims"]) == (2 if on_cpu else 0)


@pytest.mark.usefixtures("no_packages")
def test_the_command_for_transforms_prints_tables_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transform_rows: list[TransformRow]
) -> None:
    others = [dataclasses.replace(row, field="another") for row in transform_rows]
    monkeypatch.setattr(transforms, "measure_transforms", lambda *_: iter([others, transform_rows]))
    file = tmp_path / "ntt.json"
    shown = run("bench", "ntt", "--largest", "12", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output
    assert "3 x 2^2" in shown.output and "transforms in babybear" in shown.output
    assert "galois is not installed" in shown.output and "ckzg is not installed" in shown.output
    written = read_tables(file, "ntt")
    assert [row["log_n"] for row in written["rows"]] == [3, 5, 2] * 2
    assert [row["growth"] for row in written["rows"]][1::3] == [1, 1]
    assert (written["duels"], written["absent"]) == ([], ["galois", "ckzg"])
    assert [each["unit"] for each in written["aims"]][-2:] == ["x", "x"]
