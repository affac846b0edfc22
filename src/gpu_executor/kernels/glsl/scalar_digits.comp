// Splits scalars into signed digits: windows of `window_bits` bits, each digit between -2^(bits - 1)
// and 2^(bits - 1). Digit w of scalar i of batch b becomes an entry: its key is the number of its
// bucket, or NO_KEY for a digit of 0; its value is the index of its point, and NEGATIVE for a negative
// digit.
//
// The points are one or more tables of the same length: table k has the points times
// 2^(k * table_windows * window_bits). So window w uses table w / table_windows, and the buckets of
// window w % table_windows: bucket (b * table_windows + w % table_windows) * 2^(bits - 1)
// + |digit| - 1. The entries of windows that share their buckets are neighbours. Batch b has the set of
// tables b / sums_per_set % sets, which begins at set_stride times its number.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "bucket_keys.glsl"

layout(push_constant) uniform Push {
    uint count; uint points; uint scalar_words; uint windows; uint window_bits; uint table_windows;
    uint set_stride; uint sums_per_set; uint sets;
};
layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Entries { uint entries[]; };

ELEMENTWISE(e) {
    uint batch = e / points, point = e % points, first = batch / sums_per_set % sets * set_stride;
    uint buckets = 1u << (window_bits - 1), carry = 0;
    for (uint w = 0; w < windows; ++w) {
        uint bit = w * window_bits, word = bit / 32, offset = bit % 32;
        uint bits = word < scalar_words ? scalars[e * scalar_words + word] >> offset : 0;
        if (offset + window_bits > 32 && word + 1 < scalar_words) {
            bits |= scalars[e * scalar_words + word + 1] << (32 - offset);
        }
        bool negative;
        uint size = take_digit(bits, buckets, carry, negative);
        uint row = w % table_windows, window = batch * table_windows + row;
        uint before = row * (windows / table_windows) + min(row, windows % table_windows);
        uint at = (batch * windows + before + w / table_windows) * points + point;
        uint index = first + w / table_windows * points + point;
        keys[at] = size == 0 ? NO_KEY : window * buckets + size - 1;
        entries[at] = negative ? index | NEGATIVE : index;
    }
}
