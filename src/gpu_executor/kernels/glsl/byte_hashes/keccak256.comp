// Keccak with 512 bits of capacity and digests of 256 bits: SHA3-256 (FIPS 202) and Keccak-256, which
// differ in the byte behind the message, DOMAIN. A lane of 64 bits is a pair of words, (low, high), so that
// every device runs the same code.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "../spec_ids.glsl"
layout(constant_id = ID_DOMAIN) const uint DOMAIN = 1;
#define BLOCK_WORDS 34
#define DIGEST_WORDS 8
#define PADDING DOMAIN
#include "message.glsl"

const uvec2 ROUND_CONSTANTS[24] = uvec2[24](
    uvec2(0x00000001, 0x00000000), uvec2(0x00008082, 0x00000000), uvec2(0x0000808A, 0x80000000),
    uvec2(0x80008000, 0x80000000), uvec2(0x0000808B, 0x00000000), uvec2(0x80000001, 0x00000000),
    uvec2(0x80008081, 0x80000000), uvec2(0x00008009, 0x80000000), uvec2(0x0000008A, 0x00000000),
    uvec2(0x00000088, 0x00000000), uvec2(0x80008009, 0x00000000), uvec2(0x8000000A, 0x00000000),
    uvec2(0x8000808B, 0x00000000), uvec2(0x0000008B, 0x80000000), uvec2(0x00008089, 0x80000000),
    uvec2(0x00008003, 0x80000000), uvec2(0x00008002, 0x80000000), uvec2(0x00000080, 0x80000000),
    uvec2(0x0000800A, 0x00000000), uvec2(0x8000000A, 0x80000000), uvec2(0x80008081, 0x80000000),
    uvec2(0x00008080, 0x80000000), uvec2(0x80000001, 0x00000000), uvec2(0x80008008, 0x80000000));

uvec2 state[25];

uint count_blocks(uint total) {
    return total / BLOCK_BYTES + 1;
}

void begin() {
#define CLEAR_ROW(y) state[y] = state[5 + y] = state[10 + y] = state[15 + y] = state[20 + y] = uvec2(0);
    EACH_OF(5, CLEAR_ROW)
}

void permute() {
    // A loop: lavapipe compiles 24 unrolled rounds for 2 s.
    [[dont_unroll]] for (uint round = 0; round < 24; ++round) {
        uvec2 parity[5], change[5], moved[25];
#define ADD_COLUMN(x) parity[x] = state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20];
        EACH_OF(5, ADD_COLUMN)
#define COMBINE(x) change[x] = parity[(x + 4) % 5] ^ rotate_left_64(parity[(x + 1) % 5], 1);
        EACH_OF(5, COMBINE)
#define MOVE(to, from, x, n) moved[to] = rotate_left_64(state[from] ^ change[x], n);
        MOVE(0, 0, 0, 0) MOVE(10, 1, 1, 1) MOVE(20, 2, 2, 62) MOVE(5, 3, 3, 28) MOVE(15, 4, 4, 27)
        MOVE(16, 5, 0, 36) MOVE(1, 6, 1, 44) MOVE(11, 7, 2, 6) MOVE(21, 8, 3, 55) MOVE(6, 9, 4, 20)
        MOVE(7, 10, 0, 3) MOVE(17, 11, 1, 10) MOVE(2, 12, 2, 43) MOVE(12, 13, 3, 25) MOVE(22, 14, 4, 39)
        MOVE(23, 15, 0, 41) MOVE(8, 16, 1, 45) MOVE(18, 17, 2, 15) MOVE(3, 18, 3, 21) MOVE(13, 19, 4, 8)
        MOVE(14, 20, 0, 18) MOVE(24, 21, 1, 2) MOVE(9, 22, 2, 61) MOVE(19, 23, 3, 56) MOVE(4, 24, 4, 14)
#define CHI(y, x)                                                                              \
        state[5 * (y) + x] = moved[5 * (y) + x]                                                \
            ^ ~moved[5 * (y) + (x + 1) % 5] & moved[5 * (y) + (x + 2) % 5];
#define MIX_ROW(y) CHI(y, 0) CHI(y, 1) CHI(y, 2) CHI(y, 3) CHI(y, 4)
        EACH_OF(5, MIX_ROW)
        state[0] ^= ROUND_CONSTANTS[round];
    }
}

void absorb(uint at, uint total, bool last) {
    if (last) block[BLOCK_WORDS - 1] |= 0x80000000;
#define ADD_LANE(i) state[i] ^= uvec2(block[2 * (i)], block[2 * (i) + 1]);
    EACH_OF(16, ADD_LANE) ADD_LANE(16)
    permute();
}

void finish() {
#define PUT_WORDS(i)                                                                           \
    digest[2 * (i)] = state[i].x;                                                              \
    digest[2 * (i) + 1] = state[i].y;
    EACH_OF(4, PUT_WORDS)
}

#include "hash_messages.glsl"
