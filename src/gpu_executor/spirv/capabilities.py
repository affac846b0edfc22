"""The capabilities that a module may declare: their names, and which of them are refused."""

from __future__ import annotations

# fmt: off
CAPABILITY_NAMES: dict[int, str] = {
    0: "Matrix", 1: "Shader", 2: "Geometry", 3: "Tessellation", 4: "Addresses", 5: "Linkage",
    6: "Kernel", 7: "Vector16", 8: "Float16Buffer", 9: "Float16", 10: "Float64", 11: "Int64",
    12: "Int64Atomics", 18: "Groups", 21: "AtomicStorage", 22: "Int16",
    28: "UniformBufferArrayDynamicIndexing", 30: "StorageBufferArrayDynamicIndexing",
    38: "GenericPointer", 39: "Int8", 50: "ImageQuery", 61: "GroupNonUniform",
    62: "GroupNonUniformVote", 63: "GroupNonUniformArithmetic", 64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle", 66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered", 68: "GroupNonUniformQuad", 4423: "SubgroupBallotKHR",
    4427: "DrawParameters", 4428: "WorkgroupMemoryExplicitLayoutKHR", 4431: "SubgroupVoteKHR",
    4433: "StorageBuffer16BitAccess", 4434: "UniformAndStorageBuffer16BitAccess",
    4435: "StoragePushConstant16", 4437: "DeviceGroup", 4441: "VariablePointersStorageBuffer",
    4442: "VariablePointers", 4448: "StorageBuffer8BitAccess",
    4449: "UniformAndStorageBuffer8BitAccess", 4450: "StoragePushConstant8",
    4464: "DenormPreserve", 4465: "DenormFlushToZero", 4466: "SignedZeroInfNanPreserve",
    4467: "RoundingModeRTE", 4468: "RoundingModeRTZ", 4472: "RayQueryKHR",
    4473: "UntypedPointersKHR", 5055: "ShaderClockKHR", 5297: "GroupNonUniformPartitionedNV",
    5301: "ShaderNonUniform", 5302: "RuntimeDescriptorArray", 5345: "VulkanMemoryModel",
    5346: "VulkanMemoryModelDeviceScope", 5347: "PhysicalStorageBufferAddresses",
    5612: "AtomicFloat32MinMaxEXT", 5613: "AtomicFloat64MinMaxEXT", 6016: "DotProductInputAll",
    6017: "DotProductInput4x8Bit", 6018: "DotProductInput4x8BitPacked", 6019: "DotProduct",
    6022: "CooperativeMatrixKHR", 6026: "GroupNonUniformRotateKHR", 6033: "AtomicFloat32AddEXT",
    6034: "AtomicFloat64AddEXT",
}
# fmt: on
REFUSED_CAPABILITIES = {
    6: "OpenCL SPIR-V is not Vulkan SPIR-V; compile for Vulkan (glslc, or clspv for OpenCL C)",
    # Their variables carry no pointee type, so what they bind could not be told.
    4473: "only typed pointers are read; compile without untyped pointers",
}
