// SHA-512 (FIPS 180-4). A 64-bit number is a pair of words, (low, high), so that every device runs the same
// code.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define BLOCK_WORDS 32
#define DIGEST_WORDS 16
#define PADDING 0x80
#include "message.glsl"

uvec2 state[8];

uint count_blocks(uint total) {
    return total / 128 + (total % 128 < 112 ? 1 : 2);
}

void begin() {
    state = uvec2[8](
        uvec2(0xF3BCC908, 0x6A09E667), uvec2(0x84CAA73B, 0xBB67AE85),
        uvec2(0xFE94F82B, 0x3C6EF372), uvec2(0x5F1D36F1, 0xA54FF53A),
        uvec2(0xADE682D1, 0x510E527F), uvec2(0x2B3E6C1F, 0x9B05688C),
        uvec2(0xFB41BD6B, 0x1F83D9AB), uvec2(0x137E2179, 0x5BE0CD19));
}

uvec2 add(uvec2 x, uvec2 y) {
    uint low = x.x + y.x;
    return uvec2(low, x.y + y.y + uint(low < y.x));
}

uvec2 rotate_right_64(uvec2 x, uint n) {
    return rotate_left_64(x, 64 - n);
}

uvec2 shift_right_64(uvec2 x, uint n) {
    return uvec2(x.x >> n | x.y << (32 - n), x.y >> n);
}

// The constant of a round is one of five numbers, by the number of 16 rounds: an array of all 80 would be
// indexed by a variable, for which lavapipe compiles comparisons for half a minute.
#define K(high, low) uvec2(low, high)
uvec2 choose(uint t, uvec2 k0, uvec2 k1, uvec2 k2, uvec2 k3, uvec2 k4) {
    return t < 16 ? k0 : t < 32 ? k1 : t < 48 ? k2 : t < 64 ? k3 : k4;
}

#define ROUND(a, b, c, d, e, f, g, h, i, k0, k1, k2, k3, k4) {                                                     \
        uvec2 sum = rotate_right_64(e, 14) ^ rotate_right_64(e, 18) ^ rotate_right_64(e, 41);  \
        sum = add(add(h, sum), add(g ^ e & (f ^ g), add(choose(t, k0, k1, k2, k3, k4), w[i])));       \
        d = add(d, sum);                                                                       \
        h = rotate_right_64(a, 28) ^ rotate_right_64(a, 34) ^ rotate_right_64(a, 39);          \
        h = add(sum, add(h, a & b | c & (a | b)));                                             \
    }
// Word i of the next 16 words of the schedule.
#define EXTEND(i) {                                                                            \
        uvec2 early = w[((i) + 1) % 16], late = w[((i) + 14) % 16];                            \
        early = rotate_right_64(early, 1) ^ rotate_right_64(early, 8) ^ shift_right_64(early, 7); \
        late = rotate_right_64(late, 19) ^ rotate_right_64(late, 61) ^ shift_right_64(late, 6); \
        w[i] = add(add(w[i], w[((i) + 9) % 16]), add(early, late));                            \
    }

void absorb(uint at, uint total, bool last) {
    uvec2 w[16];
#define TAKE_WORD(j) w[j] = uvec2(swap_bytes(block[2 * (j) + 1]), swap_bytes(block[2 * (j)]));
    EACH_OF(16, TAKE_WORD)
    if (last) w[15] = uvec2(total << 3, total >> 29);
    uvec2 a = state[0], b = state[1], c = state[2], d = state[3];
    uvec2 e = state[4], f = state[5], g = state[6], h = state[7];
    // A loop: lavapipe compiles 80 unrolled rounds for seconds.
    [[dont_unroll]] for (uint t = 0; t < 80; t += 16) {
        if (t > 0) {
            EACH_OF(16, EXTEND)
        }
        ROUND(a, b, c, d, e, f, g, h, 0, K(0x428A2F98, 0xD728AE22), K(0xE49B69C1, 0x9EF14AD2),
              K(0x27B70A85, 0x46D22FFC), K(0x19A4C116, 0xB8D2D0C8), K(0xCA273ECE, 0xEA26619C))
        ROUND(h, a, b, c, d, e, f, g, 1, K(0x71374491, 0x23EF65CD), K(0xEFBE4786, 0x384F25E3),
              K(0x2E1B2138, 0x5C26C926), K(0x1E376C08, 0x5141AB53), K(0xD186B8C7, 0x21C0C207))
        ROUND(g, h, a, b, c, d, e, f, 2, K(0xB5C0FBCF, 0xEC4D3B2F), K(0x0FC19DC6, 0x8B8CD5B5),
              K(0x4D2C6DFC, 0x5AC42AED), K(0x2748774C, 0xDF8EEB99), K(0xEADA7DD6, 0xCDE0EB1E))
        ROUND(f, g, h, a, b, c, d, e, 3, K(0xE9B5DBA5, 0x8189DBBC), K(0x240CA1CC, 0x77AC9C65),
              K(0x53380D13, 0x9D95B3DF), K(0x34B0BCB5, 0xE19B48A8), K(0xF57D4F7F, 0xEE6ED178))
        ROUND(e, f, g, h, a, b, c, d, 4, K(0x3956C25B, 0xF348B538), K(0x2DE92C6F, 0x592B0275),
              K(0x650A7354, 0x8BAF63DE), K(0x391C0CB3, 0xC5C95A63), K(0x06F067AA, 0x72176FBA))
        ROUND(d, e, f, g, h, a, b, c, 5, K(0x59F111F1, 0xB605D019), K(0x4A7484AA, 0x6EA6E483),
              K(0x766A0ABB, 0x3C77B2A8), K(0x4ED8AA4A, 0xE3418ACB), K(0x0A637DC5, 0xA2C898A6))
        ROUND(c, d, e, f, g, h, a, b, 6, K(0x923F82A4, 0xAF194F9B), K(0x5CB0A9DC, 0xBD41FBD4),
              K(0x81C2C92E, 0x47EDAEE6), K(0x5B9CCA4F, 0x7763E373), K(0x113F9804, 0xBEF90DAE))
        ROUND(b, c, d, e, f, g, h, a, 7, K(0xAB1C5ED5, 0xDA6D8118), K(0x76F988DA, 0x831153B5),
              K(0x92722C85, 0x1482353B), K(0x682E6FF3, 0xD6B2B8A3), K(0x1B710B35, 0x131C471B))
        ROUND(a, b, c, d, e, f, g, h, 8, K(0xD807AA98, 0xA3030242), K(0x983E5152, 0xEE66DFAB),
              K(0xA2BFE8A1, 0x4CF10364), K(0x748F82EE, 0x5DEFB2FC), K(0x28DB77F5, 0x23047D84))
        ROUND(h, a, b, c, d, e, f, g, 9, K(0x12835B01, 0x45706FBE), K(0xA831C66D, 0x2DB43210),
              K(0xA81A664B, 0xBC423001), K(0x78A5636F, 0x43172F60), K(0x32CAAB7B, 0x40C72493))
        ROUND(g, h, a, b, c, d, e, f, 10, K(0x243185BE, 0x4EE4B28C), K(0xB00327C8, 0x98FB213F),
              K(0xC24B8B70, 0xD0F89791), K(0x84C87814, 0xA1F0AB72), K(0x3C9EBE0A, 0x15C9BEBC))
        ROUND(f, g, h, a, b, c, d, e, 11, K(0x550C7DC3, 0xD5FFB4E2), K(0xBF597FC7, 0xBEEF0EE4),
              K(0xC76C51A3, 0x0654BE30), K(0x8CC70208, 0x1A6439EC), K(0x431D67C4, 0x9C100D4C))
        ROUND(e, f, g, h, a, b, c, d, 12, K(0x72BE5D74, 0xF27B896F), K(0xC6E00BF3, 0x3DA88FC2),
              K(0xD192E819, 0xD6EF5218), K(0x90BEFFFA, 0x23631E28), K(0x4CC5D4BE, 0xCB3E42B6))
        ROUND(d, e, f, g, h, a, b, c, 13, K(0x80DEB1FE, 0x3B1696B1), K(0xD5A79147, 0x930AA725),
              K(0xD6990624, 0x5565A910), K(0xA4506CEB, 0xDE82BDE9), K(0x597F299C, 0xFC657E2A))
        ROUND(c, d, e, f, g, h, a, b, 14, K(0x9BDC06A7, 0x25C71235), K(0x06CA6351, 0xE003826F),
              K(0xF40E3585, 0x5771202A), K(0xBEF9A3F7, 0xB2C67915), K(0x5FCB6FAB, 0x3AD6FAEC))
        ROUND(b, c, d, e, f, g, h, a, 15, K(0xC19BF174, 0xCF692694), K(0x14292967, 0x0A0E6E70),
              K(0x106AA070, 0x32BBD1B8), K(0xC67178F2, 0xE372532B), K(0x6C44198C, 0x4A475817))
    }
    state[0] = add(state[0], a);
    state[1] = add(state[1], b);
    state[2] = add(state[2], c);
    state[3] = add(state[3], d);
    state[4] = add(state[4], e);
    state[5] = add(state[5], f);
    state[6] = add(state[6], g);
    state[7] = add(state[7], h);
}

void finish() {
#define PUT_WORDS(j)                                                                           \
    digest[2 * (j)] = swap_bytes(state[j].y);                                                  \
    digest[2 * (j) + 1] = swap_bytes(state[j].x);
    EACH_OF(8, PUT_WORDS)
}

#include "hash_messages.glsl"
