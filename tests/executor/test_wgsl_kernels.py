"""Kernels that have only WGSL, on executors of every backend: "auto" opens WebGPU for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLostError, KernelError, NoDeviceError, WrongResultError
from gpu_executor.executor.candidates import FINDERS, BackendName, DeviceCandidate
from gpu_executor.webgpu.wgpu_executor import WgpuExecutor
from tests.support.executors import ADD, words
from tests.support.jobs import check_sums

DOUBLE_TEXT = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(work_group)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    var i = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        if (i < param(0u)) { y[i] = 2u * x[i]; }
        i += work_group;
    }
}
"""


def make_double(**more: Any) -> gx.Kernel:
    return gx.Kernel.from_wgsl(DOUBLE_TEXT, buffers="in u4, out u4", name="double", **more)


DOUBLE = make_double()
X = np.arange(1000, dtype=np.uint32)


def list_backends(executor: gx.GpuExecutor) -> list[str]:
    return [each.backend for each in executor.stats().devices]


WAYS: dict[str, Callable[[gx.GpuExecutor], Any]] = {
    "run": lambda executor: executor.run(DOUBLE, X),
    "submit": lambda executor: executor.submit(DOUBLE, X).result(),
    "run_batch": lambda executor: executor.run_batch(DOUBLE, [(X,), (X,)])[1],
    "map": lambda executor: list(executor.map(DOUBLE, [X, X, X]))[2],
}


@pytest.mark.parametrize("way", WAYS)
def test_auto_opens_webgpu_at_the_first_kernel_that_needs_it(way: str) -> None:
    with gx.GpuExecutor() as executor:
        check_sums([executor.run(ADD, *words(9))], [words(9)])
        assert list_backends(executor) == ["vulkan"]
        np.testing.assert_array_equal(WAYS[way](executor), 2 * X)
        assert list_backends(executor) == ["vulkan", "webgpu"]
        np.testing.assert_array_equal(executor.run(DOUBLE, X, out=np.empty_like(X)), 2 * X)
        check_sums([executor.run(ADD, *words(9))], [words(9)])
        vulkan, webgpu = executor.stats().devices
        assert vulkan.calls == 2
        assert webgpu.calls >= 2
        assert "double has only WGSL: " in str(executor.explain(DOUBLE, 5))


@pytest.mark.parametrize("backend", ["auto", "vulkan"])
def test_kernels_with_only_wgsl_do_not_take_device_arrays(backend: BackendName) -> None:
    with gx.GpuExecutor(backend) as executor:
        there = executor.to_device(X)
        ways: list[Callable[[], object]] = [
            lambda: executor.run(DOUBLE, there),
            lambda: executor.submit(DOUBLE, there).result(),
            lambda: executor.run_batch(DOUBLE, [(there,)]),
            lambda: executor.run(DOUBLE, X, keep=True),
        ]
        for way in ways:
            with pytest.raises(KernelError, match=r"'double' has only WGSL, and .*pass NumPy arra"):
                way()


def test_webgpu_is_opened_beside_several_devices_too() -> None:
    with gx.GpuExecutor("auto", devices=[0, 0]) as executor:
        large = np.arange(3 << 20, dtype=np.uint32)
        for _ in range(2):
            np.testing.assert_array_equal(executor.run(DOUBLE, large), 2 * large)
        np.testing.assert_array_equal(executor.submit(DOUBLE, large).result(), 2 * large)
        assert list_backends(executor) == ["vulkan", "vulkan", "webgpu"]


def test_results_of_the_companion_are_checked() -> None:
    wrong = make_double(reference=lambda x: 3 * x)
    with gx.GpuExecutor(check=1.0) as executor:
        with pytest.raises(WrongResultError):
            executor.run(wrong, X)
        assert executor.stats().devices[1].failed is not None
        check_sums([executor.run(ADD, *words(9))], [words(9)])


def test_an_executor_of_vulkan_says_where_the_kernel_runs() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        for run in (executor.run, lambda *call: executor.submit(*call).result()):
            with pytest.raises(KernelError, match=r"'double' has only WGSL.*GpuExecutor\('auto'\)"):
                run(DOUBLE, X)
        with pytest.raises(KernelError, match="'double' has only WGSL"):
            executor.explain(DOUBLE, 5)
        assert list_backends(executor) == ["vulkan"]


def test_an_executor_of_webgpu_runs_the_kernel_on_its_device() -> None:
    with gx.GpuExecutor("webgpu") as executor:
        np.testing.assert_array_equal(executor.run(DOUBLE, X), 2 * X)
        assert list_backends(executor) == ["webgpu"]


def test_without_webgpu_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_settings: gx.Settings) -> list[DeviceCandidate]:
        raise NoDeviceError("WebGPU needs wgpu-py")

    monkeypatch.setitem(FINDERS, "webgpu", find_nothing)
    with gx.GpuExecutor() as executor:
        for run in (executor.run, lambda *call: executor.submit(*call).result()):
            with pytest.raises(KernelError) as raised:
                run(DOUBLE, X)
            assert str(raised.value) == (
                "kernel 'double' has only WGSL, and no WebGPU device can be opened for it "
                "(webgpu: WebGPU needs wgpu-py); make one available, or give the kernel SPIR-V "
                "with Kernel.from_spirv"
            )
        assert "double has only WGSL: no device runs it" in str(executor.explain(DOUBLE, 5))
        check_sums([executor.run(ADD, *words(9))], [words(9)])


def test_a_webgpu_device_that_does_not_open_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor() as executor:
        with monkeypatch.context() as patch:

            def refuse(*_arguments: object, **_options: object) -> None:
                raise NoDeviceError("busy")

            patch.setattr(WgpuExecutor, "__init__", refuse)
            with pytest.raises(KernelError, match=r"no WebGPU device can be opened .*: busy\)"):
                executor.run(DOUBLE, X)
        np.testing.assert_array_equal(executor.run(DOUBLE, X), 2 * X)


@pytest.mark.parametrize("way", ["run", "submit"])
def test_a_companion_that_is_lost_for_good_fails_its_calls_only(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def lose(*_arguments: object, **_options: object) -> None:
        raise DeviceLostError("WebGPU", -4, "lost")

    with gx.GpuExecutor(tries=2) as executor:
        np.testing.assert_array_equal(executor.run(DOUBLE, X), 2 * X)
        monkeypatch.setattr(WgpuExecutor, "run", lose)
        for _ in range(5):
            with pytest.raises((DeviceLostError, NoDeviceError)):
                WAYS[way](executor)
        check_sums([executor.run(ADD, *words(9))], [words(9)])
        check_sums([executor.submit(ADD, *words(9)).result()], [words(9)])


def test_a_profile_includes_a_companion_that_is_open() -> None:
    with gx.GpuExecutor() as executor:
        executor.run(DOUBLE, X)
        with executor.profile() as profile:
            executor.run(DOUBLE, X)
        vulkan, webgpu = ([span.stage for span in each.spans] for each in profile.devices)
        assert (vulkan, sorted(webgpu)) == ([], ["compute", "double", "drain", "fill"])


def test_the_companion_is_closed_with_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[WgpuExecutor] = []
    close = WgpuExecutor.close

    def note_and_close(self: WgpuExecutor) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(WgpuExecutor, "close", note_and_close)
    with gx.GpuExecutor() as executor:
        executor.run(DOUBLE, X)
        assert not closed
    assert len(closed) == 1
    with pytest.raises(gx.errors.ClosedError):
        executor.run(DOUBLE, X)


SCALE_GLSL = """#version 450
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P { uint count; uint fixed_word; float factor; int offset; };
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) y[i] = factor * x[i] + float(offset) + float(fixed_word);
}
"""
SCALE_WGSL = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(work_group)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
    if (at.x < param(0u)) {
        y[at.x] = bitcast<f32>(param(2u)) * x[at.x] + f32(bitcast<i32>(param(3u)))
            + f32(param(1u));
    }
}
"""
PUSH = (5).to_bytes(4, "little")


def declare_scale(**changes: Any) -> gx.Kernel:
    declaration: dict[str, Any] = {
        "buffers": "in f4, out f4", "params": ["factor", "offset"], "push": PUSH,
        "name": "scale", **changes,
    }  # fmt: skip
    return gx.Kernel.from_wgsl(SCALE_WGSL, **declaration)


@pytest.mark.parametrize("wgsl", [SCALE_WGSL, declare_scale()], ids=["text", "kernel"])
def test_a_kernel_of_glsl_takes_wgsl_as_a_text_or_as_a_kernel(wgsl: str | gx.Kernel) -> None:
    both, x = gx.Kernel.from_glsl(SCALE_GLSL, wgsl=wgsl, push=PUSH), np.arange(100, dtype="f4")
    for backend in ("webgpu", "vulkan"):
        with gx.GpuExecutor(backend) as gpu:
            np.testing.assert_array_equal(gpu.run(both, x, params=(2, -3)), 2 * x + 2)


@pytest.mark.parametrize(
    ("wgsl", "words"),
    [
        (5, "wgsl is a int; it must be a WGSL text or a kernel"),
        ("scale.wgsl", "wgsl is 'scale.wgsl', which is no WGSL text"),
        (
            declare_scale(params=["offset", "factor"]),
            "whose params are ['offset', 'factor']; those",
        ),
        (declare_scale(params=["factor"]), "whose params are ['factor']; those of the SPIR-V are"),
        (
            declare_scale(buffers="in u4, out f4"),
            "whose arguments are in uint32, out float32; those",
        ),
        (declare_scale(split="elements"), "whose split is 'elements'; this kernel's is 'whole'"),
    ],
    ids=range(6),
)
def test_wgsl_that_does_not_fit_a_kernel_is_refused(wgsl: Any, words: str) -> None:
    with pytest.raises(KernelError, match=re.escape(words)):
        gx.Kernel.from_glsl(SCALE_GLSL, wgsl=wgsl, push=PUSH)


def test_a_kernel_without_wgsl_is_refused_as_wgsl() -> None:
    other = gx.Kernel.from_glsl(SCALE_GLSL, name="other", push=PUSH)
    with pytest.raises(KernelError, match="wgsl is kernel 'other', which has no WGSL"):
        gx.Kernel.from_glsl(SCALE_GLSL, wgsl=other, push=PUSH)
