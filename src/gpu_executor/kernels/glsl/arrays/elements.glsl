// Elements of every type of NumPy's that arrays on devices have, in buffers of 32-bit words: a
// device needs no smaller integers in buffers. The codes of the types are in codes.glsl.

#include "codes.glsl"

// An array of push constants as a vector: arrays that are passed to functions have no form in
// WebGPU.
#define VECTOR(array) uvec4(array[0], array[1], array[2], array[3])

bool is_signed(uint type) {
    return type == TYPE_INT8 || type == TYPE_INT16 || type == TYPE_INT32 || type == TYPE_INT64;
}

bool is_float(uint type) { return type >= TYPE_FLOAT16; }

uint count_bytes(uint type) {
    if (type <= TYPE_INT8) return 1;
    if (type <= TYPE_INT16 || type == TYPE_FLOAT16) return 2;
    if (type == TYPE_UINT64 || type == TYPE_INT64 || type == TYPE_FLOAT64) return 8;
    return 4;
}

// Defines name_low(i) and name_high(i): the words of element i of a buffer. The low one is an
// integer of fewer bits as it is in memory, with zeros above.
#define DEFINE_LOAD(name, buffer_words, TYPE)                                                  \
    uint name##_low(uint i) {                                                                  \
        if (count_bytes(TYPE) == 1) return (buffer_words[i >> 2] >> ((i & 3) * 8)) & 0xffu;    \
        if (count_bytes(TYPE) == 2) return (buffer_words[i >> 1] >> ((i & 1) * 16)) & 0xffffu; \
        return buffer_words[count_bytes(TYPE) == 8 ? 2 * i : i];                               \
    }                                                                                          \
    uint name##_high(uint i) { return buffer_words[2 * i + 1]; }

// An integer of at most 32 bits, as it is in memory, as one of 32 bits; a bool as 0 or 1.
uint widen(uint low, uint type) {
    if (type == TYPE_BOOL) return low != 0 ? 1 : 0;
    if (type == TYPE_INT8) return uint(int(low << 24) >> 24);
    if (type == TYPE_INT16) return uint(int(low << 16) >> 16);
    return low;
}

#ifdef LONG
// By shifts: WebGPU has no other form for this.
uint64_t join_words(uvec2 words) { return uint64_t(words.x) | uint64_t(words.y) << 32; }
uvec2 split_words(uint64_t x) { return uvec2(uint(x), uint(x >> 32)); }
#endif

// The bits of a float16 as those of the float32 with the same value.
uint half_to_float(uint half_bits) {
    uint sign = (half_bits & 0x8000u) << 16, rest = half_bits & 0x7fffu;
    if (rest >= 0x7c00u) return sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    if (rest >= 0x400u) return sign | (rest << 13) + 0x38000000u;
    if (rest == 0) return sign;
    uint top = uint(findMSB(rest));  // subnormal: rest * 2^-24
    return sign | (top + 103) << 23 | (rest << (23 - top) & 0x7fffffu);
}

// The bits of a float32 as those of the nearest float16; of two, the even one.
uint float_to_half(uint bits) {
    uint sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return sign | 0x7e00u;
    if (rest >= 0x47800000u) return sign | 0x7c00u;  // 2^16 and more
    if (rest < 0x33000000u) return sign;             // below half of the smallest float16
    uint exponent = rest >> 23, mantissa = (rest & 0x7fffffu) | 0x800000u;
    uint least = max(exponent, 113u);  // of the float32 with the exponent of the result
    uint shift = 13 + least - exponent;
    uint kept = mantissa >> shift, lost = mantissa & ((1u << shift) - 1);
    uint middle = 1u << (shift - 1);
    if (lost > middle || (lost == middle && (kept & 1) != 0)) ++kept;
    return sign | ((least - 113) << 10) + kept;
}
