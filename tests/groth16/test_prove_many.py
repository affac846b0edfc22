"""examples/prove_many.py on one device: proofs beside witnesses, none of them twice or half."""

from __future__ import annotations

import runpy
import shutil
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import gpu_executor as gx
from tests.support.circuits import find_data
from tests.support.examples import FOLDER
from tests.support.witness_folders import ZKEY, check_outputs, copy_witnesses

EXAMPLE = runpy.run_path(str(FOLDER / "prove_many.py"))


def call_at_once(worker: Any) -> Callable[..., Future[Any]]:
    """Calls methods of a worker in this thread."""

    def call(method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(worker, method)(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    return call


ProofWorker: Any = EXAMPLE["ProofWorker"]


class Unclosed(ProofWorker):  # type: ignore[misc]
    """A worker on the backend that tests share."""

    def close(self) -> None:
        self._key.close()


@pytest.mark.slow
def test_proofs_appear_beside_their_witnesses(
    gpu: gx.PersistentVulkanBackend, tmp_path: Path
) -> None:
    paths = copy_witnesses(tmp_path, 3)
    other = tmp_path / "other.wtns"
    shutil.copyfile(find_data("arrays", "bn128", ".wtns"), other)
    broken = tmp_path / "broken.wtns"
    broken.write_bytes(b"wtns")
    (tmp_path / "proof-w1.json").write_text("made before")
    (tmp_path / "proof-w2.json.tmp").write_text("of a lost worker")
    faults = EXAMPLE["prove_all"](
        lambda: [call_at_once(Unclosed(gpu))], ZKEY, [*paths, other, broken]
    )
    assert faults.keys() == {str(other), str(broken)}
    assert "the witness of another circuit" in faults[str(other)]
    check_outputs(paths[0])
    check_outputs(paths[2])
    assert (tmp_path / "proof-w1.json").read_text() == "made before", "not written twice"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_lost_worker_s_share_goes_to_another(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []

    class Worker:
        def __init__(self, dies: bool) -> None:
            self._dies = dies

        def prove(self, share: list[int]) -> dict[str, str]:
            if self._dies:
                raise ConnectionError
            done.extend(share)
            return {}

    shares = deque([[1, 2], [3], [4, 5]])
    workers = [call_at_once(Worker(dies)) for dies in (False, True)]
    left = EXAMPLE["run_shares"](workers, shares, {})
    assert left == workers[:1] and not shares
    assert sorted(done) == [1, 2, 3, 4, 5]
    assert "a worker is lost" in capsys.readouterr().out
    shares = deque([[1]])
    assert EXAMPLE["run_shares"](workers[1:], shares, {}) == []
    assert shares == deque([[1]]), "kept for the workers that are started next"


def test_the_program_ends_if_workers_are_lost_again_and_again() -> None:
    class Worker:
        def load(self, _zkey: Path) -> str:
            return "a device"

        def prove(self, _share: list[Path]) -> dict[str, str]:
            raise ConnectionError

    with pytest.raises(SystemExit, match="2 witnesses are left: all workers were lost 3 times"):
        EXAMPLE["prove_all"](lambda: [call_at_once(Worker())], ZKEY, [Path("a"), Path("b")])
