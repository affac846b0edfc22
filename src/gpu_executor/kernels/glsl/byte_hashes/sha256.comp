// SHA-256 (FIPS 180-4). With DOUBLES, the digest of the digest.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BLOCK_WORDS 16
#define DIGEST_WORDS 8
#define PADDING 0x80
#include "message.glsl"

layout(constant_id = ID_DOUBLES) const bool DOUBLES = false;
#define EXTRA_BLOCKS uint(DOUBLES)

uint state[8];

uint count_blocks(uint total) {
    return total / 64 + (total % 64 < 56 ? 1 : 2);
}

void begin() {
    state = uint[8](
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19);
}

// A round: the names of the state rotate instead of their values. Words of the schedule from 16 on
// take the places of those that are not needed any more.
#define ROUND(a, b, c, d, e, f, g, h, i, k) {                                                  \
        uint sum = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25))        \
            + (g ^ e & (f ^ g)) + (k + block[i]);                                              \
        d += sum;                                                                              \
        h = sum + (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22))             \
            + (a & b | c & (a | b));                                                           \
    }
#define FIRST(a, b, c, d, e, f, g, h, i, k) ROUND(a, b, c, d, e, f, g, h, i, k)
#define LATER(a, b, c, d, e, f, g, h, i, k) {                                                  \
        uint early = block[(i + 1) % 16], late = block[(i + 14) % 16];                         \
        block[i] += block[(i + 9) % 16]                                                        \
            + (rotate_right(early, 7) ^ rotate_right(early, 18) ^ early >> 3)                  \
            + (rotate_right(late, 17) ^ rotate_right(late, 19) ^ late >> 10);                  \
    }                                                                                          \
    ROUND(a, b, c, d, e, f, g, h, i, k)

// Takes `block`, whose words are big-endian numbers here.
void compress_block() {
    uint a = state[0], b = state[1], c = state[2], d = state[3];
    uint e = state[4], f = state[5], g = state[6], h = state[7];
    FIRST(a, b, c, d, e, f, g, h, 0, 0x428A2F98)
    FIRST(h, a, b, c, d, e, f, g, 1, 0x71374491)
    FIRST(g, h, a, b, c, d, e, f, 2, 0xB5C0FBCF)
    FIRST(f, g, h, a, b, c, d, e, 3, 0xE9B5DBA5)
    FIRST(e, f, g, h, a, b, c, d, 4, 0x3956C25B)
    FIRST(d, e, f, g, h, a, b, c, 5, 0x59F111F1)
    FIRST(c, d, e, f, g, h, a, b, 6, 0x923F82A4)
    FIRST(b, c, d, e, f, g, h, a, 7, 0xAB1C5ED5)
    FIRST(a, b, c, d, e, f, g, h, 8, 0xD807AA98)
    FIRST(h, a, b, c, d, e, f, g, 9, 0x12835B01)
    FIRST(g, h, a, b, c, d, e, f, 10, 0x243185BE)
    FIRST(f, g, h, a, b, c, d, e, 11, 0x550C7DC3)
    FIRST(e, f, g, h, a, b, c, d, 12, 0x72BE5D74)
    FIRST(d, e, f, g, h, a, b, c, 13, 0x80DEB1FE)
    FIRST(c, d, e, f, g, h, a, b, 14, 0x9BDC06A7)
    FIRST(b, c, d, e, f, g, h, a, 15, 0xC19BF174)
    LATER(a, b, c, d, e, f, g, h, 0, 0xE49B69C1)
    LATER(h, a, b, c, d, e, f, g, 1, 0xEFBE4786)
    LATER(g, h, a, b, c, d, e, f, 2, 0x0FC19DC6)
    LATER(f, g, h, a, b, c, d, e, 3, 0x240CA1CC)
    LATER(e, f, g, h, a, b, c, d, 4, 0x2DE92C6F)
    LATER(d, e, f, g, h, a, b, c, 5, 0x4A7484AA)
    LATER(c, d, e, f, g, h, a, b, 6, 0x5CB0A9DC)
    LATER(b, c, d, e, f, g, h, a, 7, 0x76F988DA)
    LATER(a, b, c, d, e, f, g, h, 8, 0x983E5152)
    LATER(h, a, b, c, d, e, f, g, 9, 0xA831C66D)
    LATER(g, h, a, b, c, d, e, f, 10, 0xB00327C8)
    LATER(f, g, h, a, b, c, d, e, 11, 0xBF597FC7)
    LATER(e, f, g, h, a, b, c, d, 12, 0xC6E00BF3)
    LATER(d, e, f, g, h, a, b, c, 13, 0xD5A79147)
    LATER(c, d, e, f, g, h, a, b, 14, 0x06CA6351)
    LATER(b, c, d, e, f, g, h, a, 15, 0x14292967)
    LATER(a, b, c, d, e, f, g, h, 0, 0x27B70A85)
    LATER(h, a, b, c, d, e, f, g, 1, 0x2E1B2138)
    LATER(g, h, a, b, c, d, e, f, 2, 0x4D2C6DFC)
    LATER(f, g, h, a, b, c, d, e, 3, 0x53380D13)
    LATER(e, f, g, h, a, b, c, d, 4, 0x650A7354)
    LATER(d, e, f, g, h, a, b, c, 5, 0x766A0ABB)
    LATER(c, d, e, f, g, h, a, b, 6, 0x81C2C92E)
    LATER(b, c, d, e, f, g, h, a, 7, 0x92722C85)
    LATER(a, b, c, d, e, f, g, h, 8, 0xA2BFE8A1)
    LATER(h, a, b, c, d, e, f, g, 9, 0xA81A664B)
    LATER(g, h, a, b, c, d, e, f, 10, 0xC24B8B70)
    LATER(f, g, h, a, b, c, d, e, 11, 0xC76C51A3)
    LATER(e, f, g, h, a, b, c, d, 12, 0xD192E819)
    LATER(d, e, f, g, h, a, b, c, 13, 0xD6990624)
    LATER(c, d, e, f, g, h, a, b, 14, 0xF40E3585)
    LATER(b, c, d, e, f, g, h, a, 15, 0x106AA070)
    LATER(a, b, c, d, e, f, g, h, 0, 0x19A4C116)
    LATER(h, a, b, c, d, e, f, g, 1, 0x1E376C08)
    LATER(g, h, a, b, c, d, e, f, 2, 0x2748774C)
    LATER(f, g, h, a, b, c, d, e, 3, 0x34B0BCB5)
    LATER(e, f, g, h, a, b, c, d, 4, 0x391C0CB3)
    LATER(d, e, f, g, h, a, b, c, 5, 0x4ED8AA4A)
    LATER(c, d, e, f, g, h, a, b, 6, 0x5B9CCA4F)
    LATER(b, c, d, e, f, g, h, a, 7, 0x682E6FF3)
    LATER(a, b, c, d, e, f, g, h, 8, 0x748F82EE)
    LATER(h, a, b, c, d, e, f, g, 9, 0x78A5636F)
    LATER(g, h, a, b, c, d, e, f, 10, 0x84C87814)
    LATER(f, g, h, a, b, c, d, e, 11, 0x8CC70208)
    LATER(e, f, g, h, a, b, c, d, 12, 0x90BEFFFA)
    LATER(d, e, f, g, h, a, b, c, 13, 0xA4506CEB)
    LATER(c, d, e, f, g, h, a, b, 14, 0xBEF9A3F7)
    LATER(b, c, d, e, f, g, h, a, 15, 0xC67178F2)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void absorb(uint at, uint total, bool last) {
#define SWAP_WORD(j) block[j] = swap_bytes(block[j]);
    EACH_OF(16, SWAP_WORD)
    if (last) {
        block[14] = total >> 29;
        block[15] = total << 3;
    }
    if (DOUBLES && at / BLOCK_BYTES >= count_blocks(total)) {  // the message is the digest
#define TAKE_DIGEST(j) block[j] = state[j];
        EACH_OF(8, TAKE_DIGEST)
        block[8] = 0x80000000;
        block[9] = block[10] = block[11] = block[12] = block[13] = block[14] = 0;
        block[15] = 256;
        begin();
    }
    compress_block();
}

void finish() {
#define PUT_WORD(j) digest[j] = swap_bytes(state[j]);
    EACH_OF(8, PUT_WORD)
}

#include "hash_messages.glsl"
