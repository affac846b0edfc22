"""Fixtures of the WebGPU tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.webgpu import device as device_module

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "native queue, shared memory": {},
    "native queue, device memory": {"SHARING_KINDS": ()},
    "public queue, shared memory": {"private": False},
    "public queue, device memory, uniform parameters": {
        "private": False,
        "SHARING_KINDS": (),
        "IMMEDIATES": "no such feature",
    },
}
"""Ways to reach a device: the device queue, and changed constants of `webgpu.device`."""


@pytest.fixture(scope="session", params=list(CONFIGURATIONS))
def each_webgpu(request: pytest.FixtureRequest) -> Iterator[gx.WgpuExecutor]:
    """An executor for each configuration, shared by all tests."""
    changes = dict(CONFIGURATIONS[request.param])
    private = bool(changes.pop("private", True))
    with contextlib.ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in changes.items():
                patch.setattr(device_module, name, value)
            gpu = opened.enter_context(gx.WgpuExecutor(private=private, settings=gx.Settings()))
        assert gpu._device.immediates == ("IMMEDIATES" not in changes)
        can_share = gpu._device.kind in device_module.SHARING_KINDS
        assert gpu._device.shares_memory == (can_share and "SHARING_KINDS" not in changes)
        yield gpu
