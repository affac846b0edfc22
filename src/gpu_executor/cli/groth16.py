"""`gpu-executor groth16`: proofs of circom's circuits, with the files of snarkjs.

Exit code 1 says that a proof is not valid, and 2 that something could not be done.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import click

from gpu_executor.cli.options import make_device_options, make_input_argument, make_output_argument
from gpu_executor.cli.output import print_text
from gpu_executor.cli.progress import show_work
from gpu_executor.common.files import open_replacement, parse_json
from gpu_executor.errors import GpuError, ProofFileError
from gpu_executor.executor import GpuExecutor
from gpu_executor.executor.candidates import BackendName
from gpu_executor.groth16.proof import Proof, public_from_json, public_to_json
from gpu_executor.groth16.proving_key import ProvingKey
from gpu_executor.groth16.verification import verify as verify_proof
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.groth16.witness_file import Witness, load_witness, require_fit
from gpu_executor.groth16.zkey_file import ZkeyFile

Parsed = TypeVar("Parsed")
Command = TypeVar("Command", bound=Callable[..., Any])
NOT_VALID, NOT_DONE = 1, 2
"""Exit codes."""


class ProofGroup(click.Group):
    """Commands whose errors end with 2, because 1 says that a proof is not valid."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, SystemExit):  # nobody reads the output; rich and click end with 1
            _discard_output()
            return ctx.exit(NOT_DONE)
        except MemoryError as error:
            message = f"not enough memory: {error}"
        except GpuError as error:
            message = str(error)
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            message = f"{name}{error.strerror or error}"
        click.echo(f"gpu-executor: {message}", err=True)
        return ctx.exit(NOT_DONE)


@click.group(cls=ProofGroup)
def groth16() -> None:
    """Prove and verify circuits of circom.

    The files are those of snarkjs: .zkey, .wtns, .r1cs, .ptau, proof.json, public.json and
    verification_key.json. The exit code is 1 if a proof is not valid, and 2 for every error.
    """


def _discard_output() -> None:
    """Let what is left of the standard output go nowhere: Python writes it at its end."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def make_key_options(command: Command) -> Command:
    """The options of commands that load a proving key."""
    options = [
        click.option(
            "--check",
            type=click.Choice(["group", "curve"]),
            default="group",
            show_default=True,
            help="Check that points of the key are in the group, or on the curve only.",
        ),
        click.option(
            "--trusted",
            is_flag=True,
            help="Do not check the points of the key: it is your own, or was checked before.",
        ),
        click.option(
            "--verify", "verifies", is_flag=True, help="Verify the proof before it is written."
        ),
        make_device_options,
    ]
    for each in reversed(options):
        command = each(command)
    return command


# --- proofs ---


@groth16.command()
@make_input_argument("circuit.zkey")
@make_input_argument("witness.wtns")
@make_output_argument("proof.json")
@make_output_argument("public.json")
@make_key_options
def prove(
    circuit_zkey: Path, witness_wtns: Path, proof_json: Path, public_json: Path, **options: Any
) -> None:
    """Prove a witness. The order of the files is that of rapidsnark."""
    _check_distinct((circuit_zkey, witness_wtns), (proof_json, public_json))
    _prove(circuit_zkey, load_witness(witness_wtns), proof_json, public_json, **options)


@groth16.command()
@make_input_argument("input.json")
@make_input_argument("circuit.wasm")
@make_input_argument("circuit.zkey")
@make_output_argument("proof.json")
@make_output_argument("public.json")
@make_key_options
def fullprove(
    input_json: Path,
    circuit_wasm: Path,
    circuit_zkey: Path,
    proof_json: Path,
    public_json: Path,
    **options: Any,
) -> None:
    """Compute a witness with circom's calculator and prove it. The order of the files is that of
    snarkjs. Needs the extra groth16."""
    from gpu_executor.groth16.witness_calculator import compute_witness

    _check_distinct((input_json, circuit_wasm, circuit_zkey), (proof_json, public_json))
    witness = compute_witness(circuit_wasm, _parse_file(input_json, _parse_inputs))
    _prove(circuit_zkey, witness, proof_json, public_json, **options)


def _prove(
    zkey: Path,
    witness: Witness,
    proof_file: Path,
    public_file: Path,
    *,
    check: Literal["group", "curve"],
    trusted: bool,
    verifies: bool,
    backend: BackendName,
    device: str | None,
) -> None:
    if trusted and check == "curve":
        raise click.UsageError("--trusted checks nothing, so --check curve has no meaning.")
    header = ZkeyFile.open(zkey)
    require_fit(witness, header.curve, header.n_vars, "the key")  # before its points are loaded
    with (
        show_work("proving"),
        GpuExecutor(backend, device) as gpu,
        ProvingKey.load(zkey, device=gpu, check=check, trusted=trusted) as key,
    ):
        proof, public = key.prove(witness, verify=verifies)
    _write_files((proof_file, proof.to_json()), (public_file, public_to_json(public)))
    if proof_file.is_file() and public_file.is_file():  # and not the standard output
        kind = "verified proof" if verifies else "proof"
        print_text(f"the {kind} is in {proof_file}, its public values in {public_file}")


@groth16.command()
@make_input_argument("verification_key.json")
@make_input_argument("public.json")
@make_input_argument("proof.json")
@click.pass_context
def verify(
    context: click.Context, verification_key_json: Path, public_json: Path, proof_json: Path
) -> None:
    """Verify a proof, on the host. The order of the files is that of snarkjs.

    The exit code is 0 if the proof is valid and 1 if it is not.
    """
    key = _parse_file(verification_key_json, VerificationKey.from_json)
    public = _parse_file(public_json, public_from_json)
    proof = _parse_file(proof_json, Proof.from_json)
    is_valid = verify_proof(key, public, proof)
    print_text("the proof is valid" if is_valid else "the proof is NOT valid")
    if not is_valid:
        context.exit(NOT_VALID)


# --- keys ---


@groth16.command()
@make_input_argument("circuit.zkey")
@make_output_argument("verification_key.json")
def export(circuit_zkey: Path, verification_key_json: Path) -> None:
    """Write the verification key of a proving key."""
    _check_distinct((circuit_zkey,), (verification_key_json,))
    key = VerificationKey.from_zkey(ZkeyFile.open(circuit_zkey))
    key.check()
    _write_files((verification_key_json, key.to_json()))
    print_text(f"the verification key is in {verification_key_json}")


@groth16.command()
@make_input_argument("circuit.r1cs")
@make_output_argument("circuit.zkey")
@click.option("--unsafe", is_flag=True, help="Whoever made the key can prove anything with it.")
@click.option("--seed", help="The seed of the secrets. By default they are drawn at random.")
@make_device_options
def setup(
    circuit_r1cs: Path,
    circuit_zkey: Path,
    unsafe: bool,
    seed: str | None,
    backend: BackendName,
    device: str | None,
) -> None:
    """Make a proving key for tests and benchmarks, whose secrets are known.

    Keys for use come from a ceremony: snarkjs's `zkey new` and `zkey contribute`.
    """
    from gpu_executor.groth16.setup import setup as make_key

    if not unsafe:
        raise click.UsageError(
            "the secrets of this key are known to whoever makes it, who can prove anything with "
            "it: for tests and benchmarks only. Say --unsafe if that is what it is for. A key for "
            "use comes from a ceremony: `snarkjs zkey new` and `snarkjs zkey contribute`."
        )
    _check_distinct((circuit_r1cs,), (circuit_zkey,))
    own_seed = secrets.token_bytes(32) if seed is None else seed
    with show_work("making the key"), GpuExecutor(backend, device) as gpu:
        made = make_key(circuit_r1cs, device=gpu, unsafe_secrets=own_seed)
    made.save(circuit_zkey)
    print_text(f"the key is in {circuit_zkey}; its secrets are known: for tests and benchmarks")


# --- files ---


@groth16.command()
@make_input_argument("file")
def info(file: Path) -> None:
    """Say what a .zkey, .r1cs, .wtns or .ptau file holds, without values of a witness."""
    from gpu_executor.groth16.file_summary import summarize

    kind, facts = summarize(file)
    print_text(f"{file}: {kind}, {file.stat().st_size:,} bytes")
    width = max(map(len, facts))
    for name, value in facts.items():
        print_text(f"  {name:<{width}}  {f'{value:,}' if isinstance(value, int) else value}")


def _parse_file(path: Path, parse: Callable[[str], Parsed]) -> Parsed:
    """What a text file holds; errors name the file."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ProofFileError("it is no text in UTF-8", str(path)) from None
    except ProofFileError as error:
        raise ProofFileError(str(error), str(path)) from None


def _parse_inputs(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:  # which shows a place, and no value
        raise ProofFileError(f"it is no JSON: {error}") from None


def _check_distinct(inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Refuse outputs that would replace an input or each other."""
    seen = {os.path.realpath(each) for each in inputs}
    for each in outputs:
        real = os.path.realpath(each)
        if real in seen and (each.is_file() or not each.exists()):
            raise click.UsageError(f"{each} would be replaced: it is named twice.")
        seen.add(real)


def _write_files(*texts: tuple[Path, str]) -> None:
    """Write text files, each in one step, and none before all texts are written. The first file is
    the last that takes its place."""
    with contextlib.ExitStack() as outputs:
        for path, text in texts:
            file = outputs.enter_context(_open_output(path))
            file.write(text.encode())
            file.flush()


@contextlib.contextmanager
def _open_output(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # a pipe or a terminal
        with path.open("wb") as stream:
            yield stream
        return
    with open_replacement(Path(os.path.realpath(path)), 0o666) as file:
        yield file
