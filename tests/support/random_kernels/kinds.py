"""The scalar types of the random kernels, in GLSL and in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Kind:
    """A scalar type of GLSL."""

    name: str
    code: str
    """The type's character code in NumPy."""
    vector: str
    """What the names of its vector types begin with."""
    exact: int
    """All integers from 0 to this one are values of the type."""
    wide: str = ""
    """The 32-bit type through which values are converted where the device only stores this one."""
    storage: str = ""
    """The GLSL extension for buffers of this type."""
    arithmetic: str = ""
    """The GLSL extension for arithmetic in this type."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.code)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def is_unsigned(self) -> bool:
        return self.dtype.kind == "u"

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize

    def spell(self, width: int = 1) -> str:
        """The GLSL name of the scalar, or of the vector with so many components."""
        return self.name if width == 1 else f"{self.vector}{width}"


_EXPLICIT = "GL_EXT_shader_explicit_arithmetic_types_"
_8, _16 = "GL_EXT_shader_8bit_storage", "GL_EXT_shader_16bit_storage"
_64 = f"{_EXPLICIT}int64"
KINDS = {
    kind.name: kind
    for kind in (
        Kind("float", "f4", "vec", 1 << 24),
        Kind("double", "f8", "dvec", (1 << 31) - 1),
        Kind("int", "i4", "ivec", (1 << 31) - 1),
        Kind("uint", "u4", "uvec", (1 << 31) - 1),
        Kind("int8_t", "i1", "i8vec", 127, "int", _8, f"{_EXPLICIT}int8"),
        Kind("uint8_t", "u1", "u8vec", 255, "uint", _8, f"{_EXPLICIT}int8"),
        Kind("int16_t", "i2", "i16vec", (1 << 15) - 1, "int", _16, f"{_EXPLICIT}int16"),
        Kind("uint16_t", "u2", "u16vec", (1 << 16) - 1, "uint", _16, f"{_EXPLICIT}int16"),
        Kind("int64_t", "i8", "i64vec", (1 << 31) - 1, "", _64, _64),
        Kind("uint64_t", "u8", "u64vec", (1 << 31) - 1, "", _64, _64),
        Kind("float16_t", "f2", "f16vec", 1 << 11, "float", _16, f"{_EXPLICIT}float16"),
    )
}
PLAIN_KINDS = ("float", "int", "uint")
"""The kinds that WebGPU has, too."""
