"""The answers of trials in a file: read by later processes, and never taken from a damaged file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpu_executor as gx
from gpu_executor.vulkan import device_memory
from gpu_executor.vulkan.device_trials import TrialFile
from tests.conftest import OpenGpu
from tests.support.device_arrays import get_device_memory

HUGE = '{"bytes": 1' + 400 * "0" + "}"


def test_memory_is_measured_once(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there was no memory to measure is measured by the next process."""
    answers = iter([None, 110.5, 99.0])
    monkeypatch.setattr(device_memory, "measure_bytes_per_product", lambda _: next(answers))

    def ask(folder: Path | None) -> float:
        return get_device_memory(fresh_gpu(cache_dir=folder)).bytes_per_product

    assert [ask(tmp_path) for _ in range(3)] == [0.0, 110.5, 110.5]
    assert ask(None) == 99.0


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", '{"bytes": "1"}', '{"bytes": -1}', '{"bytes": NaN}', '{"bytes": true}', HUGE],
)
def test_a_damaged_file_is_replaced(tmp_path: Path, content: str) -> None:
    trials = TrialFile(tmp_path, gx.devices()[0])
    assert trials.path is not None
    trials.path.write_text(content)
    assert trials.find("bytes", lambda: 3.0) == 3.0
    assert trials.find("others", lambda: 0.0) == 0.0
    assert json.loads(trials.path.read_text()) == {"bytes": 3.0, "others": 0.0}
    assert TrialFile(tmp_path, gx.devices()[0]).find("bytes", lambda: 4.0) == 3.0
