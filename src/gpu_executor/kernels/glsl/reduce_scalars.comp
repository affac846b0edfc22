// Reduces scalars of `words` words modulo `order`, by subtractions: for orders of about as many bits.
// With `big_endian` = 1, the bytes of a scalar begin with the most significant.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

const uint MAX_WORDS = 24;
layout(push_constant) uniform Push {
    uint count; uint words; uint big_endian; uint order[MAX_WORDS];
};
layout(set = 0, binding = 0, std430) readonly buffer Given { uint given[]; };
layout(set = 0, binding = 1, std430) buffer Scalars { uint scalars[]; };

uint swap_bytes(uint x) {
    return x << 24 | (x & 0xFF00) << 8 | (x >> 8 & 0xFF00) | x >> 24;
}

ELEMENTWISE(e) {
    for (uint i = 0; i < words; ++i) {
        uint at = e * words + i;
        scalars[at] = big_endian != 0 ? swap_bytes(given[e * words + words - 1 - i]) : given[at];
    }
    while (true) {
        uint borrow = 0;
        for (uint i = 0; i < words; ++i) {
            uint borrowed, difference = usubBorrow(scalars[e * words + i], order[i], borrowed);
            borrow = borrowed | uint(difference < borrow);
        }
        if (borrow != 0) break;
        for (uint i = 0; i < words; ++i) {
            uint borrowed, difference = usubBorrow(scalars[e * words + i], order[i], borrowed);
            scalars[e * words + i] = difference - borrow;
            borrow = borrowed | uint(difference < borrow);
        }
    }
}
