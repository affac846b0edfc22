// Operands of any strides, broadcast to one shape. Element (i0, i1, i2, i3) of the result belongs
// to the element start + i0 * strides[0] + ... of an operand. Strides may be negative or 0; they
// count elements, and wrap around modulo 2^32. Axes before the last AXES have length 1.
//
// An invocation writes whole words of the result: several elements, if these are smaller.

#extension GL_EXT_control_flow_attributes : require

layout(constant_id = ID_AXES) const uint AXES = 4;
layout(constant_id = ID_RESULT_TYPE) const uint RESULT_TYPE = TYPE_UINT32;

// The members of the push constants that describe an operand. A scalar is in them, not in memory.
#define OPERAND(name) uint name##_start; uint name##_strides[4]; uint name##_scalar[2];

// Where element i of the result is along each axis.
uvec4 unravel(uint i, uvec4 lengths) {
    uvec4 at = uvec4(0);
    [[unroll]] for (int axis = 3; axis > 0; --axis) {
        if (4 - axis < int(AXES)) {
            at[axis] = i % lengths[axis];
            i /= lengths[axis];
        } else if (4 - axis == int(AXES)) {
            at[axis] = i;
        }
    }
    if (AXES == 4) at[0] = i;
    return at;
}

uint locate(uvec4 at, uint start, uvec4 strides) {
    return start + at.x * strides.x + at.y * strides.y + at.z * strides.z + at.w * strides.w;
}

// Defines main, which computes with element(i) the words of element i of the result and writes
// them. The push constants have `elements`, their number; `count` is that of the words to write, or
// of 64-bit elements.
#define WRITE_ELEMENTS(result, element)                                                        \
    ELEMENTWISE(unit) {                                                                        \
        uint bytes = count_bytes(RESULT_TYPE), parts = bytes < 4 ? 4 / bytes : 1;              \
        uint mask = bytes < 4 ? (1u << (8 * bytes)) - 1 : 0xffffffffu;                         \
        uvec2 words = uvec2(0);                                                                \
        for (uint part = 0; part < parts; ++part) {                                            \
            uint i = unit * parts + part;                                                      \
            if (i >= elements) break;                                                          \
            uvec2 found = element(i);                                                          \
            words.x |= (found.x & mask) << (part * 8 * bytes);                                 \
            words.y = found.y;                                                                 \
        }                                                                                      \
        if (bytes == 8) {                                                                      \
            result[2 * unit] = words.x;                                                        \
            result[2 * unit + 1] = words.y;                                                    \
        } else {                                                                               \
            result[unit] = words.x;                                                            \
        }                                                                                      \
    }
