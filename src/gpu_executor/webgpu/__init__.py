"""The executor on WebGPU (wgpu-py): the same calls for every machine that has no Vulkan."""
