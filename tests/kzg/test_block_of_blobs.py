"""examples/block_of_blobs.py on Ray; tests/test_examples.py runs it without."""

from __future__ import annotations

import ckzg

from tests.conftest import RunPython
from tests.support.kzg_setups import SetupPair, make_blob
from tests.support.pages import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "block_of_blobs.py"


def test_actors_of_a_cluster_share_the_blobs(mainnet: SetupPair, run_python: RunPython) -> None:
    """Two actors share three blobs; both find the points and tables of the setup on disk."""
    assert mainnet.own.lagrange_table.nbytes  # stores it
    blobs = [make_blob([5, seed]) for seed in (30, 31, 32)]
    script = f"""
import runpy
from tests.support.kzg_setups import make_blob
import numpy as np
import gpu_executor as gx

example = runpy.run_path({str(EXAMPLE)!r}, run_name="example")
joined = b"".join(make_blob([5, seed]) for seed in (30, 31, 32))
blobs = np.frombuffer(joined, np.uint8).reshape(3, -1)
start = gx.cluster.start_actors
gx.cluster.start_actors = lambda cls, backend: start(cls, backend, 2)
workers = example["RayWorkers"]()
for part in workers.call("commit", np.array_split(blobs, 2)):
    for each in part:
        print("commitment", bytes(each).hex())
workers.close()
"""
    done = run_python(script, RAY_ADDRESS="local", GPU_VALIDATION="0")
    assert done.returncode == 0, done.stderr
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("commitment")]
    assert found == [ckzg.blob_to_kzg_commitment(blob, mainnet.ckzg).hex() for blob in blobs]


def test_without_ray_the_example_says_what_to_install(run_python: RunPython) -> None:
    script = f"""
import runpy, sys
sys.modules["ray"] = None
sys.argv = ["block_of_blobs.py", "--ray"]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""
    done = run_python(script)
    assert done.returncode == 1
    expected = "--ray needs Ray, which is not installed: pip install 'gpu-executor[ray]'"
    assert done.stderr.strip() == expected
