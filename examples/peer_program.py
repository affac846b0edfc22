"""A program that `gpu-executor bench peers` runs beside this package: sums and products by NumPy.

gpu-executor bench peers --program "python examples/peer_program.py"

It answers lines of JSON on its standard input with lines on its standard output, as
docs/benchmarks.md describes. A program in any other language does the same.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Fields whose elements have 31 bits at most: their products fit into 64 bits.
FIELDS = ["BABYBEAR", "KOALABEAR", "MERSENNE31"]


def describe() -> dict[str, Any]:
    """Who answers, and what it can compute: fields or curves by operation."""
    return {
        "name": "NumPy",
        "version": np.__version__,
        "device": "one thread of the CPU",
        "operations": {"sum": ["uint32"], "product": FIELDS},
    }


def prepare(work: dict[str, Any]) -> Callable[[], Any]:
    """Read the inputs, do the work once and write the result. Nothing of this is timed."""
    a, b = (np.fromfile(each["path"], "<u4") for each in work["inputs"])
    if work["operation"] == "sum":

        def compute() -> Any:
            return a + b

    else:
        modulus = np.uint64(int(work["modulus"], 16))

        def compute() -> Any:
            return (a.astype(np.uint64) * b % modulus).astype(np.uint32)

    compute().astype("<u4").tofile(work["result"]["path"])
    return compute


def run(compute: Callable[[], Any], calls: int) -> float:
    """The milliseconds of a call: one that is not timed, then so many in a row."""
    compute()
    begun = time.perf_counter()
    for _ in range(calls):
        compute()
    return (time.perf_counter() - begun) * 1e3 / calls


def main() -> None:
    compute = None
    for line in sys.stdin:  # ends when the benchmark does
        request = json.loads(line)
        answer: dict[str, Any]
        if request["request"] == "describe":
            answer = describe()
        elif request["request"] == "run" and compute is not None:
            answer = {"milliseconds": run(compute, request["calls"])}
        elif request["memory"] == "device":
            answer = {"unsupported": "NumPy has arrays in host memory only"}
        else:
            compute = prepare(request)
            answer = {"prepared": True}
        print(json.dumps({"id": request["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
