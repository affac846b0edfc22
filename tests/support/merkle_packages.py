"""@zk-kit/imt and @openzeppelin/merkle-tree, which answer a list of requests in one process of
Node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.support.snarkjs import INSTALLED, NODE_FOLDER, find_node


def ask_packages(requests: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers to requests, which tests/node/merkle.mjs describes."""
    node = find_node()
    assert node is not None
    finished = subprocess.run(
        [node, str(NODE_FOLDER / "merkle.mjs"), str(INSTALLED)],
        cwd=INSTALLED,
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    answers: list[Any] = json.loads(finished.stdout)
    return answers
