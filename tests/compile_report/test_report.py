"""The report: families, the summary, what is expected to spill, and the whole command."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Hashable, Iterator, Mapping
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
from gpu_executor.kernels.modules import get_module_names
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


COMPILE_SOME = """
import runpy
from gpu_executor.compile_report import null_hardware
from tests.compile_report.test_report import list_operations, select_demanding

def record_some(info):
    device = record(info)
    left_out = set(list_operations()) - device.operations
    assert not left_out, left_out
    device.requests = select_demanding(device.requests)
    return device

record, null_hardware.record_workload = null_hardware.record_workload, record_some
runpy.run_module("gpu_executor.compile_report", run_name="__main__")
"""
"""The process of the command, which compiles one pipeline of each module. It fails if the workload
leaves out an operation."""


def select_demanding(
    requests: Mapping[Hashable, RecordedPipeline],
) -> dict[Hashable, RecordedPipeline]:
    """One pipeline of each module: that of BLS12-381 on points, which has the longest numbers with
    a pairing, and else the last, as workloads go from small to large. The command has all, which
    take four times as long."""
    chosen: dict[str, Hashable] = {}
    for key, request in requests.items():
        before = chosen.get(request.module)
        if before is None or "bls12_381" not in requests[before].kernel.name:
            chosen[request.module] = key
    return {key: requests[key] for key in chosen.values()}


def compile_some(family: str) -> FamilyReport:
    environment = make_environment(family, find_driver())
    command = [sys.executable, "-W", "error", "-c", COMPILE_SOME]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return parse_report(family, done.stdout)


@pytest.fixture(scope="module", params=["navi21", "vega10"])
def compiled(request: pytest.FixtureRequest) -> FamilyReport:
    """Another generation has other instructions and more registers for scalars."""
    return compile_some(request.param)


@pytest.mark.slow
def test_every_module_compiles_and_spills_only_where_that_is_expected(
    compiled: FamilyReport,
) -> None:
    assert summarize([compiled]).is_good
    assert {each.module for each in compiled.pipelines} == set(get_module_names().values())
    spilling = {each.module for each in compiled.pipelines if each.spills}
    expected = set(EXPECTED_SPILLS) - ({"sha256_fixed"} if compiled.family == "navi21" else set())
    assert spilling == expected, "a module that spills no more stays listed"


@pytest.mark.slow
def test_operations_use_every_module_but_variants_for_comparison(compiled: FamilyReport) -> None:
    chosen = {each.module for each in compiled.pipelines if each.chosen}
    variants = set(get_module_names().values()) - chosen
    assert {"curve2_accumulate", "curve1_f64_accumulate"} <= variants
    assert all(each.startswith(("curve1_", "curve2_", "strided_copy_parts")) for each in variants)
