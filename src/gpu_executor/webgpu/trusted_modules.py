"""Shader modules without wgpu's loop bounds, for the package's own code.

By default wgpu adds a counter to every loop, so that no driver takes an endless one for undefined
behaviour: a chain of products then takes 122 ms instead of 13.2. The package's own loops end. The
checks of buffer accesses stay. wgpu-py has no public function for it, so this module calls
wgpu-native with the private names of the one version that `native_queue.py` knows too; with another
version the module is made with all checks.
"""

from __future__ import annotations

from typing import Any

from gpu_executor.webgpu.native_queue import is_known_version


def create_trusted_module(wgpu: Any, device: Any, code: bytes, label: str) -> Any:
    """Create a shader module of SPIR-V on an open device."""
    if not is_known_version(wgpu, device):
        return device.create_shader_module(code=code, label=label)
    from wgpu.backends.wgpu_native import _api

    ffi, lib = _api.ffi, _api.lib
    words = ffi.new("uint8_t[]", code)
    source = ffi.new("WGPUShaderSourceSPIRV *")
    source.chain.sType = lib.WGPUSType_ShaderSourceSPIRV
    source.codeSize, source.code = len(code) // 4, ffi.cast("uint32_t *", words)
    name = ffi.new("char[]", label.encode())
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name, len(label.encode())
    handle = _api.libf.wgpuDeviceCreateShaderModuleTrusted(
        device._internal, descriptor, lib.WGPUShaderRuntimeChecks_BoundsChecks
    )
    return _api.GPUShaderModule(label, handle, device)
