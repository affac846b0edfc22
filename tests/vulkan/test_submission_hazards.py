"""Hazards between submissions: the validation layer compares each submission with earlier ones.

Layer 1.3.239 does not know that the host waited for a timeline semaphore. A slot that is used again
looks to the layer like a race with itself. With as many slots as jobs the host waits for nothing
until all are submitted, so every message is a real hazard.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LAYER_SETTINGS, RunPython

DEPTH = 16
BATCHES = """
import numpy as np
import gpu_executor as gx

with gx.PersistentVulkanBackend() as gpu:
    add = gx.kernels.load("vector_add_u32")
    new = gpu.zeros if {mapped} else np.zeros
    jobs = [(new(1000, np.uint32), new(1000, np.uint32)) for _ in range({jobs})]
    for i, (a, b) in enumerate(jobs):
        a[:] = i
    results = gpu.run_batch(add, jobs, depth={depth}, device_local={device_local})
    assert [set(c.tolist()) for c in results] == [{{i}} for i in range({jobs})]
    print(len(gpu.validation_messages()))
"""


@pytest.fixture
def comparing_settings(tmp_path: Path) -> str:
    """A folder with layer settings that enable the comparison of submissions."""
    compared = "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT"
    settings = LAYER_SETTINGS.rstrip("\n") + f",{compared}\n"
    (tmp_path / "vk_layer_settings.txt").write_text(settings)
    return str(tmp_path)


@pytest.mark.parametrize("device_local", [True, False], ids=["device-local", "host-visible"])
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_sixteen_slots_in_flight_have_no_hazard(
    run_python: RunPython, comparing_settings: str, mapped: bool, device_local: bool
) -> None:
    script = BATCHES.format(mapped=mapped, device_local=device_local, jobs=DEPTH, depth=DEPTH)
    done = run_python(script, VK_LAYER_SETTINGS_PATH=comparing_settings)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_the_layer_does_compare_submissions(run_python: RunPython, comparing_settings: str) -> None:
    """One job more uses a slot again, after a wait that the layer does not know of."""
    script = BATCHES.format(mapped=False, device_local=False, jobs=DEPTH + 1, depth=DEPTH)
    done = run_python(script, VK_LAYER_SETTINGS_PATH=comparing_settings)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
