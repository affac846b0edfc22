"""Fills ranges of buffers on the device: the initial values of outputs other than zero.

WebGPU itself clears buffers to zero only, and it copies only between different buffers.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from gpu_executor.kernel import Grid
from gpu_executor.webgpu.device import WebGpuDevice


class FillPipeline:
    """Fills ranges of buffers with a repeated pattern; zeros need no pipeline."""

    _WORK_GROUP = 256
    _TEXT = f"""
@group(0) @binding(0) var<storage, read> pattern: array<u32>;
@group(0) @binding(1) var<storage, read_write> filled: array<u32>;

@compute @workgroup_size({_WORK_GROUP})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {{
    let i = (group.y * groups.x + group.x) * {_WORK_GROUP}u + local;
    if (i < arrayLength(&filled)) {{ filled[i] = pattern[i % arrayLength(&pattern)]; }}
}}
"""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        self._layout: Any = None
        self._patterns: dict[bytes, Any] = {}
        """A buffer for each pattern."""
        self._lock = threading.Lock()
        self.pipeline: Any = None

    def bind(self, element: bytes, buffer: Any, offset: int, nbytes: int) -> tuple[Any, Grid]:
        """Return the bind group and the grid that fill a range with copies of an element.

        `offset` and `nbytes` are multiples of four.
        """
        with self._lock:
            if self.pipeline is None:
                self._compile()
            pattern = self._find_pattern(element * (4 // math.gcd(4, len(element))))
        group = self._device.bind(
            self._layout, [(pattern, 0, pattern.size), (buffer, offset, nbytes)]
        )
        return group, self._device.spread_groups(-(-nbytes // (4 * self._WORK_GROUP)))

    def _compile(self) -> None:
        device = self._device.device
        self._layout = self._device.create_layout(["read-only-storage", "storage"])
        layout = device.create_pipeline_layout(bind_group_layouts=[self._layout])
        module = device.create_shader_module(code=self._TEXT)
        self.pipeline = device.create_compute_pipeline(
            layout=layout, compute={"module": module, "entry_point": "main"}
        )

    def _find_pattern(self, words: bytes) -> Any:
        pattern = self._patterns.get(words)
        if pattern is None:
            pattern = self._device.device.create_buffer_with_data(
                data=words, usage=self._device.wgpu.BufferUsage.STORAGE
            )
            self._patterns[words] = pattern
        return pattern
