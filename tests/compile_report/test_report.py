"""The report: families, the summary, what is expected to spill, and the whole command."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_executor import curves, fields, kzg, msm, ops
from gpu_executor.cli import compile_report as command
from gpu_executor.cli.commands import commands
from gpu_executor.compile_report.null_hardware import (
    PipelineFigures,
    find_driver,
    make_environment,
)
from gpu_executor.compile_report.report import (
    EXPECTED_SPILLS,
    FamilyReport,
    choose_families,
    compile_families,
    parse_report,
    summarize,
)
from gpu_executor.compile_report.workload import RecordedPipeline, RecordingDevice
from gpu_executor.curves.parameters import get_named
from gpu_executor.kernels.curves import curve_kernel
from gpu_executor.kernels.modules import SpecId, get_module_names
from gpu_executor.ops.operation import Operation
from tests.support.plans import describe_device

GOOD = PipelineFigures("wide_mul", "mul", "words=12", chosen=True, instructions=1986, vgprs=56)
SPILLING = dataclasses.replace(GOOD, module="wide_power", spilled_vgprs=11, scratch_bytes=3072)
FAILED = dataclasses.replace(GOOD, error="vkCreateComputePipelines failed", instructions=0)
LISTED = next(iter(EXPECTED_SPILLS))


COMPILER = """#!/bin/sh
echo "$@" >"$COMPILED/$RADV_FORCE_FAMILY"
set -e
for wait in $(seq 1000); do
    [ -e "$COMPILED/navi21" ] && [ -e "$COMPILED/vega10" ] && break
    sleep 0.01
done
cat "$COMPILED/navi21" "$COMPILED/vega10" >&2
echo '{"device": "a '$RADV_FORCE_FAMILY'", "driver": "none", "pipelines": []}'
"""
"""In the place of Python: it waits for the other family's process, at most 10 s."""


def make_report(*pipelines: PipelineFigures) -> FamilyReport:
    return FamilyReport("navi21", "Null hardware", "radv Mesa 22.3.6", pipelines)


def test_the_families_are_two_or_the_one_of_the_environment() -> None:
    assert choose_families({}) == choose_families({"RADV_FORCE_FAMILY": " "})
    assert choose_families({}) == ("navi21", "vega10")
    assert choose_families({"RADV_FORCE_FAMILY": "polaris10"}) == ("polaris10",)


@pytest.mark.parametrize(
    ("pipelines", "counts", "is_good"),
    [
        pytest.param([GOOD, GOOD], (2, 0, 0, 0), True, id="good"),
        pytest.param([GOOD, FAILED], (2, 1, 0, 0), False, id="failed"),
        pytest.param([SPILLING, GOOD], (2, 0, 1, 1), False, id="spilling"),
        pytest.param(
            [dataclasses.replace(GOOD, scratch_bytes=4)], (1, 0, 1, 1), False, id="scratch"
        ),
        pytest.param([dataclasses.replace(GOOD, spilled_sgprs=1)], (1, 0, 1, 1), False, id="SGPR"),
        pytest.param(
            [dataclasses.replace(SPILLING, module=LISTED)], (1, 0, 1, 0), True, id="expected"
        ),
    ],
)
def test_the_summary_counts_and_the_status_follows(
    pipelines: list[PipelineFigures],
    counts: tuple[int, ...],
    is_good: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    report = make_report(*pipelines)
    summary = summarize([report])
    assert dataclasses.astuple(summary) == counts
    assert summary.is_good == is_good
    monkeypatch.setattr(command, "compile_families", lambda _families: [report])
    file = tmp_path / "report.json"
    shown = CliRunner().invoke(commands, ["compile-report", "--json", str(file)])
    assert shown.exit_code == (0 if is_good else 1)
    *_, last = shown.output.splitlines()
    assert last == str(summary)
    assert last.startswith(f"{len(pipelines)} pipelines, {counts[1]} failed, {counts[2]} spilling")
    content = json.loads(file.read_text())
    assert content["summary"]["failed"] == counts[1]
    assert parse_report("navi21", json.dumps(content["families"][0])) == report


def test_families_are_compiled_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text(COMPILER)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("COMPILED", str(tmp_path))
    reports = compile_families(choose_families({}))
    assert [(each.family, each.device) for each in reports] == [
        ("navi21", "a navi21"),
        ("vega10", "a vega10"),
    ]
    assert (tmp_path / "vega10").read_text() == "-m gpu_executor.compile_report\n"


def test_a_row_has_every_figure_and_marks_variants_for_comparison() -> None:
    figures = dataclasses.replace(SPILLING, chosen=False, waves=4, spilled_sgprs=2)
    *numbers, module, kernel, _ = command.format_row(figures).split()
    assert numbers == ["1986", "56", "0", "13", "3072", "0", "4", "0", "0", "0"]
    assert (module, kernel) == ("wide_power*", "mul")


def test_pipelines_whose_primes_have_alike_digits_are_compiled_once() -> None:
    """The digits of the primes of Pallas and Vesta are zero, one or powers of two in the same
    places."""
    device, names = RecordingDevice(describe_device()), ("PALLAS", "VESTA", "BN254_G1", "SECP256K1")
    counts = []
    for name in names:
        device.add(curve_kernel(get_named(name).key, "combine", 1), 8, 1)
        counts.append(len(device.requests))
    assert counts == [1, 1, 2, 3]


def list_operations() -> Iterator[Operation[..., object]]:
    for package in (ops, msm, fields, curves, kzg):
        for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(each.name)).values():
                if isinstance(value, Operation):
                    yield value


CHOSEN_SPILLS = {
    *("wide_fold", "f64_limbs_fold", "goldilocks_fold"),
    *("wide_poseidon", "f64_limbs_poseidon"),
}
"""Kernels that operations use although they keep numbers in memory, on both GPUs."""


COMPILE_SOME = """
import json, os, runpy
from gpu_executor.compile_report import null_hardware
from tests.compile_report.test_report import is_representative, list_operations

def record_some(info):
    device = record(info)
    left_out = set(list_operations()) - device.operations
    assert not left_out, left_out
    items = [item for item in device.requests.items() if is_representative(item[1])]
    places = json.loads(os.environ["PLACES"])
    device.requests = dict(items if places is None else [items[at] for at in places])
    return device

record, null_hardware.record_workload = null_hardware.record_workload, record_some
runpy.run_module("gpu_executor.compile_report", run_name="__main__")
"""
"""The process of the command, which compiles the representative pipelines at some places, or all of
them. It fails if the workload leaves out an operation."""


def is_representative(request: RecordedPipeline) -> bool:
    """Whether a pipeline is compiled here. Those on points are, of curves with numbers of as many
    words, for one curve; folds for the fewest and the most values. The command has all: 1,340
    pipelines, of which those that are left out take a fifth of the time."""
    if request.module.startswith("curve"):
        return any(name in request.kernel.name for name in ("bls12_381", "bn254"))
    if request.module.endswith("_fold"):
        log_arity = dict(request.kernel.constants)[SpecId.LOG_ARITY]
        return log_arity in (1, 3 if "f64" in request.module else 4)
    return True


def compile_some(family: str, places: Sequence[int] | None) -> FamilyReport:
    environment = {**make_environment(family, find_driver()), "PLACES": json.dumps(places)}
    command = [sys.executable, "-W", "error", "-c", COMPILE_SOME]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return parse_report(family, done.stdout)


@pytest.fixture(scope="module")
def of_navi21() -> FamilyReport:
    return compile_some("navi21", None)


@pytest.mark.slow
def test_every_module_compiles_for_navi21_and_spills_only_where_that_is_expected(
    of_navi21: FamilyReport,
) -> None:
    assert summarize([of_navi21]).is_good
    assert {each.module for each in of_navi21.pipelines} == set(get_module_names().values())
    chosen = {each.module for each in of_navi21.pipelines if each.spills and each.chosen}
    assert chosen == CHOSEN_SPILLS
    spilling = {each.module for each in of_navi21.pipelines if each.spills}
    expected = set(EXPECTED_SPILLS) - {"sha256_fixed"}  # that one on vega10 alone
    assert spilling == expected, "a module that spills no more stays listed"


def list_demanding(report: FamilyReport) -> list[int]:
    """The places of the pipelines that have most instructions or scratch memory of their module:
    what another compiler fails at or spills first. Variants for comparison are compared on the
    first family; those with f64 limbs are, as AMD's devices do not choose them."""
    by_module: dict[str, list[int]] = {}
    for at, each in enumerate(report.pipelines):
        if each.chosen and "f64" not in each.module:
            by_module.setdefault(each.module, []).append(at)
    rows = report.pipelines
    largest = [max(at, key=lambda at: rows[at].instructions) for at in by_module.values()]
    spilling = [max(at, key=lambda at: rows[at].scratch_bytes) for at in by_module.values()]
    return sorted({*largest, *(at for at in spilling if rows[at].spills)})


@pytest.mark.slow
def test_operations_use_every_module_but_variants_for_comparison(of_navi21: FamilyReport) -> None:
    chosen = {each.module for each in of_navi21.pipelines if each.chosen}
    variants = set(get_module_names().values()) - chosen
    assert {"curve2_accumulate", "curve1_f64_accumulate"} <= variants
    assert all(each.startswith(("curve1_", "curve2_", "strided_copy_parts")) for each in variants)


@pytest.mark.slow
def test_the_most_demanding_pipelines_of_each_module_compile_for_vega10(
    of_navi21: FamilyReport,
) -> None:
    """Another generation has other instructions and more registers for scalars; what needs few of
    them on the first family has them here too."""
    places = list_demanding(of_navi21)
    report = compile_some("vega10", places)
    assert [(each.module, each.kernel, each.chosen) for each in report.pipelines] == [
        (each.module, each.kernel, each.chosen)
        for each in (of_navi21.pipelines[at] for at in places)
    ]
    assert not [each for each in report.pipelines if each.error]
    spilling = {each.module for each in report.pipelines if each.spills}
    expected = {"sha256_fixed", *(name for name in CHOSEN_SPILLS if "f64" not in name)}
    assert spilling == expected, "a module that spills no more stays listed"
