"""Hash functions of packages of Node, as independent implementations: one process for each call.

`make` installs the packages into the virtual environment, as tests/node/package-lock.json lists
them. A machine without Node skips the tests that need them.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.snarkjs import INSTALLED, find_node

SCRIPT = """
const { createRequire } = require("node:module");
const fs = require("node:fs");
const packages = createRequire(process.argv[1] + "/package.json");
const { function: name, rows, outputs, key } = JSON.parse(fs.readFileSync(0, "utf8"));
const inputs = rows.map((row) => row.map(BigInt));

async function main() {
  if (name === "poseidon-lite") {
    const library = packages("poseidon-lite");
    return inputs.map((row) => library["poseidon" + row.length](row, outputs));
  }
  if (name === "zkpassport") {
    const { poseidon2Hash } = await import(packages.resolve("@zkpassport/poseidon2"));
    return inputs.map((row) => poseidon2Hash(row));
  }
  const library = packages("circomlibjs");
  if (name === "poseidon") {
    const hash = await library.buildPoseidonReference();
    const show = (x) => hash.F.toObject(x);
    return inputs.map((row) => {
      const found = hash(row, 0, outputs);
      return outputs === 1 ? show(found) : found.map(show);
    });
  }
  const hash = name === "mimc7" ? await library.buildMimc7() : await library.buildMimcSponge();
  const show = (x) => hash.F.toObject(x);
  return inputs.map((row) => {
    const found = hash.multiHash(row, BigInt(key), outputs);
    return outputs === 1 ? show(found) : found.map(show);
  });
}

main().then((found) => {
  const text = JSON.stringify(found, (_, x) => (typeof x === "bigint" ? x.toString() : x));
  fs.writeSync(1, text);
  process.exit(0);
});
"""


def hash_with_node(name: str, rows: list[list[int]], outputs: int = 1, key: int = 0) -> list[Any]:
    """The digests of rows by a function of a package: "poseidon", "mimc7", "mimcsponge" of
    circomlibjs, "poseidon-lite" or "zkpassport". A digest is an integer, or a list of them."""
    node = find_node()
    if node is None:
        pytest.skip("Node is not installed")
    given = {
        "function": name,
        "rows": [[str(each) for each in row] for row in rows],
        "outputs": outputs,
        "key": str(key),
    }
    run = subprocess.run(
        [node, "-e", SCRIPT, "--", str(INSTALLED)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0 and run.stdout, run.stderr
    return [
        [int(each) for each in found] if isinstance(found, list) else int(found)
        for found in json.loads(run.stdout)
    ]
