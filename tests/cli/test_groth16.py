"""`gpu-executor groth16`: files, exit codes and messages."""

from __future__ import annotations

import json
import shutil
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gpu_executor as gx
from gpu_executor.cli import groth16 as command
from gpu_executor.cli.commands import commands
from gpu_executor.groth16 import Proof, VerificationKey, public_from_json, verify
from tests.conftest import RunPython
from tests.groth16.conftest import shared_tables, snarkjs
from tests.support.circuits import DATA, INPUTS, find_data
from tests.support.snarkjs import Snarkjs

__all__ = ["shared_tables", "snarkjs"]  # fixtures

ZKEY, WTNS, KEY, PROOF, PUBLIC = (
    str(find_data("multiplier", "bn128", suffix))
    for suffix in (".zkey", ".wtns", ".vk.json", ".proof.json", ".public.json")
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["groth16", *arguments])


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch, gpu: gx.PersistentVulkanBackend) -> list[tuple]:  # type: ignore[type-arg]
    """Commands take the backend of all tests, whose pipelines are translated already. Returns the
    arguments with which they opened it."""
    opened = []

    def open_shared(*arguments: object) -> nullcontext[gx.PersistentVulkanBackend]:
        opened.append(arguments)
        return nullcontext(gpu)

    monkeypatch.setattr(command, "GpuExecutor", open_shared)
    return opened


def check_proof(proof: Path, public: Path, key: str = KEY) -> None:
    """The files have a right proof."""
    values = public_from_json(public.read_text())
    assert public.read_text() == Path(key.replace(".vk.", ".public.")).read_text()
    loaded = VerificationKey.from_json(Path(key).read_text())
    assert verify(loaded, values, Proof.from_json(proof.read_text()))


# --- proofs ---


def test_a_proof_is_written_and_verified(tmp_path: Path, shared: list[object]) -> None:
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    public.write_text("old")
    shown = run("prove", ZKEY, WTNS, str(proof), str(public), "--backend=vulkan", "--device=0")
    assert shown.exit_code == 0, shown.output
    assert shared == [("vulkan", "0")]
    assert shown.stdout == f"the proof is in {proof}, its public values in {public}\n"
    check_proof(proof, public)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["proof.json", "public.json"]
    assert stat.S_IMODE(proof.stat().st_mode) & 0o444, "a proof is not secret"
    verified = run("verify", KEY, str(public), str(proof))
    assert (verified.exit_code, verified.output) == (0, "the proof is valid\n")
    again = run("prove", ZKEY, WTNS, str(proof), str(public), "--verify", "--trusted")
    assert "the verified proof is in" in again.output


def test_a_proof_from_inputs(tmp_path: Path, snarkjs: Snarkjs) -> None:
    wasm = snarkjs.compile_named("multiplier").wasm
    inputs, proof, public = (
        tmp_path / name for name in ("input.json", "proof.json", "public.json")
    )
    inputs.write_text(json.dumps(INPUTS["multiplier"]))
    shown = run("fullprove", str(inputs), str(wasm), ZKEY, str(proof), str(public))
    assert shown.exit_code == 0, shown.output
    check_proof(proof, public)
    for text, message in (
        ('{"a": 3}', "1 of them are missing"),
        ("{", "input.json: it is no JSON"),
        ('{"a": 3, "b": 4.5}', "value 0 of signal 'b'"),
        ("[" * 200, "nested too deeply"),
        ('{"a": 3, "b": ' + "9" * 5000 + "}", "it is no JSON: Exceeds the limit"),
    ):
        inputs.write_text(text)
        refused = run("fullprove", str(inputs), str(wasm), ZKEY, str(proof), str(public))
        assert refused.exit_code == 2 and message in refused.output


def test_the_exit_code_says_whether_a_proof_is_valid(tmp_path: Path) -> None:
    assert run("verify", KEY, PUBLIC, PROOF).exit_code == 0
    wrong = tmp_path / "public.json"
    wrong.write_text('["34"]')
    refused = run("verify", KEY, str(wrong), PROOF)
    assert (refused.exit_code, refused.output) == (1, "the proof is NOT valid\n")
    for content, message in (
        ("[34]", "value 0"),
        ("[", "not JSON"),
        ("\udcff", "no text in UTF-8"),
    ):
        wrong.write_bytes(content.encode("utf-8", "surrogateescape"))
        failed = run("verify", KEY, str(wrong), PROOF)
        assert failed.exit_code == 2, "1 would say that the proof is not valid"
        assert f"gpu-executor: {wrong}: " in failed.output and message in failed.output
        assert failed.output.count("\n") == 1


@pytest.mark.parametrize("error", [BrokenPipeError(), SystemExit(1), MemoryError()])
def test_output_that_cannot_be_written_does_not_say_that_a_proof_is_wrong(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def refuse(_text: str) -> None:
        raise error  # SystemExit is what rich raises where nobody reads a pipe

    monkeypatch.setattr(command, "print_text", refuse)
    suffixes = ".vk.json", ".public.json", ".proof.json"
    files = [str(find_data("multiplier", "bn128", each)) for each in suffixes]
    assert run("verify", *files).exit_code == 2


def test_a_witness_of_another_circuit_is_refused_before_the_key_is_loaded(
    tmp_path: Path, shared: list[object]
) -> None:
    out = [str(tmp_path / "proof.json"), str(tmp_path / "public.json")]
    refused = run("prove", ZKEY, str(find_data("rows", "bn128", ".wtns")), *out)
    assert refused.exit_code == 2
    assert "the witness has 603 values, and the key has 4 signals" in refused.output
    refused = run("prove", ZKEY, str(find_data("multiplier", "bls12381", ".wtns")), *out)
    assert "the witness is of bls12381, and the key of bn128" in refused.output
    assert not shared and not list(tmp_path.iterdir())


def test_a_wrong_witness_writes_nothing_with_verify(tmp_path: Path) -> None:
    wtns = tmp_path / "wrong.wtns"
    data = bytearray(Path(WTNS).read_bytes())
    data[-1 - 31] += 1  # the lowest byte of the last value
    wtns.write_bytes(data)
    out = [str(tmp_path / "proof.json"), str(tmp_path / "public.json")]
    refused = run("prove", ZKEY, str(wtns), *out, "--verify")
    assert refused.exit_code == 2 and "the proof does not verify" in refused.output
    assert [each.name for each in tmp_path.iterdir()] == ["wrong.wtns"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("prove {zkey} {wtns} {out}/same {out}/same", "it is named twice"),
        ("prove {zkey} {out}/w.wtns {out}/w.wtns {out}/public", "it is named twice"),
        ("prove {zkey} {out}/missing.wtns {out}/a {out}/b", "does not exist"),
        ("prove {wtns} {zkey} {out}/a {out}/b", "begin"),
        ("prove {zkey} {wtns} {out}/no/a {out}/b", "cannot be written"),
        ("prove {zkey} {wtns} {out} {out}/b", "is a directory"),
        ("prove {zkey} {wtns} {out}/a {out}/b --trusted --check curve", "has no meaning"),
        ("export {wtns} {out}/key.json", "begin"),
        ("info {out}/w.json", "no .zkey, .r1cs, .wtns or .ptau file"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(tmp_path: Path, arguments: str, message: str) -> None:
    shutil.copyfile(WTNS, tmp_path / "w.wtns")
    (tmp_path / "w.json").write_text("{}")
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    filled = [each.format(zkey=ZKEY, wtns=WTNS, out=tmp_path) for each in arguments.split()]
    refused = run(*filled)
    assert refused.exit_code == 2, refused.output
    assert message in refused.output and "Traceback" not in refused.output
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_disk_that_is_full_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    proof.write_text("old proof")
    public.write_text("old values")

    def refuse(_values: object) -> str:
        return "\ud800"  # which has no bytes: the second text fails when the first is written

    monkeypatch.setattr(command, "public_to_json", refuse)
    failed = run("prove", ZKEY, WTNS, str(proof), str(public))
    assert failed.exit_code == 1
    assert (proof.read_text(), public.read_text()) == ("old proof", "old values")
    assert len(list(tmp_path.iterdir())) == 2


# --- keys and files ---


@pytest.mark.parametrize("curve", ["bn128", "bls12381"])
def test_the_exported_key_is_that_of_snarkjs(tmp_path: Path, curve: str) -> None:
    exported = tmp_path / "key.json"
    shown = run("export", str(find_data("rows", curve, ".zkey")), str(exported))
    assert shown.exit_code == 0, shown.output
    assert exported.read_text() == find_data("rows", curve, ".vk.json").read_text()


def test_a_setup_is_for_those_who_say_unsafe(tmp_path: Path, shared: list[object]) -> None:
    zkey = tmp_path / "rows.zkey"
    r1cs = str(find_data("multiplier", "bn128", ".r1cs"))
    refused = run("setup", r1cs, str(zkey), "--seed", "gpu-executor")
    assert refused.exit_code == 2 and not shared and not zkey.exists()
    assert "who can prove anything with it" in refused.output
    assert "snarkjs zkey contribute" in refused.output


@pytest.mark.usefixtures("shared_tables")
def test_a_setup_makes_the_key_of_its_seed(tmp_path: Path) -> None:
    zkey = tmp_path / "multiplier.zkey"
    r1cs = str(find_data("multiplier", "bn128", ".r1cs"))
    shown = run("setup", r1cs, str(zkey), "--unsafe", "--seed", "gpu-executor")
    assert shown.exit_code == 0 and "its secrets are known" in shown.output
    assert zkey.read_bytes() == Path(ZKEY).read_bytes()
    run("setup", r1cs, str(zkey), "--unsafe")
    assert zkey.read_bytes() != Path(ZKEY).read_bytes(), "drawn at random"


def test_info_says_what_a_file_holds(tmp_path: Path) -> None:
    def show(name: str) -> list[str]:
        shown = run("info", str(find_data("rows", "bls12381", name)))
        assert shown.exit_code == 0, shown.output
        return [" ".join(line.split()) for line in shown.output.splitlines()]

    head, *lines = show(".r1cs")
    assert "circuit, 84,292 bytes" in head
    assert {"curve bls12381", "constraints 301", "signals 603", "private inputs 300"} <= {*lines}
    assert {"public signals 2", "domain 512", "signals 603"} <= {*show(".zkey")}
    head, *lines = show(".wtns")
    assert head.endswith("witness, 19,372 bytes") and lines == ["curve bls12381", "signals 603"]
    assert "powers" not in run("info", str(DATA / "README.md")).output


# --- start ---


def test_a_command_imports_no_other_command(run_python: RunPython) -> None:
    script = """
import sys
from gpu_executor.cli.commands import commands
try:
    commands(["groth16", "verify", *sys.argv[1:]], prog_name="gpu-executor")
except SystemExit as ended:
    assert ended.code == 0, ended.code
heavy = ("gpu_executor.bench", "gpu_executor.report", "wasmtime", "wgpu", "jinja2")
print([name for name in heavy if name in sys.modules])
"""
    ran = run_python(script.replace("*sys.argv[1:]", repr([KEY, PUBLIC, PROOF])[1:-1]))
    assert ran.stdout.splitlines() == ["the proof is valid", "[]"], ran.stderr


@pytest.mark.slow
def test_the_command_as_a_user_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an executor of its own, which compiles everything again: not the check of the key."""
    monkeypatch.setattr(command, "GpuExecutor", gx.GpuExecutor)
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    shown = run("prove", ZKEY, WTNS, str(proof), str(public), "--verify", "--trusted")
    assert shown.exit_code == 0, shown.output
    check_proof(proof, public)
    refused = run("prove", ZKEY, WTNS, str(proof), str(public), "--device", "no such device")
    assert refused.exit_code == 2 and "no such device" in refused.output
