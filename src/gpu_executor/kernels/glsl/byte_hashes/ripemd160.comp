// RIPEMD-160 (Dobbertin, Bosselaers, Preneel: RIPEMD-160, a strengthened version of RIPEMD).
#version 460
#extension GL_GOOGLE_include_directive : require
#define BLOCK_WORDS 16
#define DIGEST_WORDS 5
#define PADDING 0x80
#include "message.glsl"

uint state[5];

uint count_blocks(uint total) {
    return total / 64 + (total % 64 < 56 ? 1 : 2);
}

void begin() {
    state = uint[5](0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0);
}

#define XOR(x, y, z) (x ^ y ^ z)
#define IF(x, y, z) (z ^ x & (y ^ z))
#define OR_NOT(x, y, z) ((x | ~y) ^ z)
#define IF_LAST(x, y, z) (y ^ z & (x ^ y))
#define OR_NOT_LAST(x, y, z) (x ^ (y | ~z))
// The names of the state rotate instead of their values.
#define STEP(a, b, c, d, e, mix, j, n, k)                                                      \
    a = rotate_left(a + mix(b, c, d) + (block[j] + k), n) + e;                                 \
    c = rotate_left(c, 10);

void absorb(uint at, uint total, bool last) {
    if (last) {
        block[14] = total << 3;
        block[15] = total >> 29;
    }
    uint a1 = state[0], b1 = state[1], c1 = state[2], d1 = state[3], e1 = state[4];
    uint a2 = a1, b2 = b1, c2 = c1, d2 = d1, e2 = e1;
    STEP(a1, b1, c1, d1, e1, XOR, 0, 11, 0x00000000)
    STEP(e1, a1, b1, c1, d1, XOR, 1, 14, 0x00000000)
    STEP(d1, e1, a1, b1, c1, XOR, 2, 15, 0x00000000)
    STEP(c1, d1, e1, a1, b1, XOR, 3, 12, 0x00000000)
    STEP(b1, c1, d1, e1, a1, XOR, 4, 5, 0x00000000)
    STEP(a1, b1, c1, d1, e1, XOR, 5, 8, 0x00000000)
    STEP(e1, a1, b1, c1, d1, XOR, 6, 7, 0x00000000)
    STEP(d1, e1, a1, b1, c1, XOR, 7, 9, 0x00000000)
    STEP(c1, d1, e1, a1, b1, XOR, 8, 11, 0x00000000)
    STEP(b1, c1, d1, e1, a1, XOR, 9, 13, 0x00000000)
    STEP(a1, b1, c1, d1, e1, XOR, 10, 14, 0x00000000)
    STEP(e1, a1, b1, c1, d1, XOR, 11, 15, 0x00000000)
    STEP(d1, e1, a1, b1, c1, XOR, 12, 6, 0x00000000)
    STEP(c1, d1, e1, a1, b1, XOR, 13, 7, 0x00000000)
    STEP(b1, c1, d1, e1, a1, XOR, 14, 9, 0x00000000)
    STEP(a1, b1, c1, d1, e1, XOR, 15, 8, 0x00000000)
    STEP(e1, a1, b1, c1, d1, IF, 7, 7, 0x5A827999)
    STEP(d1, e1, a1, b1, c1, IF, 4, 6, 0x5A827999)
    STEP(c1, d1, e1, a1, b1, IF, 13, 8, 0x5A827999)
    STEP(b1, c1, d1, e1, a1, IF, 1, 13, 0x5A827999)
    STEP(a1, b1, c1, d1, e1, IF, 10, 11, 0x5A827999)
    STEP(e1, a1, b1, c1, d1, IF, 6, 9, 0x5A827999)
    STEP(d1, e1, a1, b1, c1, IF, 15, 7, 0x5A827999)
    STEP(c1, d1, e1, a1, b1, IF, 3, 15, 0x5A827999)
    STEP(b1, c1, d1, e1, a1, IF, 12, 7, 0x5A827999)
    STEP(a1, b1, c1, d1, e1, IF, 0, 12, 0x5A827999)
    STEP(e1, a1, b1, c1, d1, IF, 9, 15, 0x5A827999)
    STEP(d1, e1, a1, b1, c1, IF, 5, 9, 0x5A827999)
    STEP(c1, d1, e1, a1, b1, IF, 2, 11, 0x5A827999)
    STEP(b1, c1, d1, e1, a1, IF, 14, 7, 0x5A827999)
    STEP(a1, b1, c1, d1, e1, IF, 11, 13, 0x5A827999)
    STEP(e1, a1, b1, c1, d1, IF, 8, 12, 0x5A827999)
    STEP(d1, e1, a1, b1, c1, OR_NOT, 3, 11, 0x6ED9EBA1)
    STEP(c1, d1, e1, a1, b1, OR_NOT, 10, 13, 0x6ED9EBA1)
    STEP(b1, c1, d1, e1, a1, OR_NOT, 14, 6, 0x6ED9EBA1)
    STEP(a1, b1, c1, d1, e1, OR_NOT, 4, 7, 0x6ED9EBA1)
    STEP(e1, a1, b1, c1, d1, OR_NOT, 9, 14, 0x6ED9EBA1)
    STEP(d1, e1, a1, b1, c1, OR_NOT, 15, 9, 0x6ED9EBA1)
    STEP(c1, d1, e1, a1, b1, OR_NOT, 8, 13, 0x6ED9EBA1)
    STEP(b1, c1, d1, e1, a1, OR_NOT, 1, 15, 0x6ED9EBA1)
    STEP(a1, b1, c1, d1, e1, OR_NOT, 2, 14, 0x6ED9EBA1)
    STEP(e1, a1, b1, c1, d1, OR_NOT, 7, 8, 0x6ED9EBA1)
    STEP(d1, e1, a1, b1, c1, OR_NOT, 0, 13, 0x6ED9EBA1)
    STEP(c1, d1, e1, a1, b1, OR_NOT, 6, 6, 0x6ED9EBA1)
    STEP(b1, c1, d1, e1, a1, OR_NOT, 13, 5, 0x6ED9EBA1)
    STEP(a1, b1, c1, d1, e1, OR_NOT, 11, 12, 0x6ED9EBA1)
    STEP(e1, a1, b1, c1, d1, OR_NOT, 5, 7, 0x6ED9EBA1)
    STEP(d1, e1, a1, b1, c1, OR_NOT, 12, 5, 0x6ED9EBA1)
    STEP(c1, d1, e1, a1, b1, IF_LAST, 1, 11, 0x8F1BBCDC)
    STEP(b1, c1, d1, e1, a1, IF_LAST, 9, 12, 0x8F1BBCDC)
    STEP(a1, b1, c1, d1, e1, IF_LAST, 11, 14, 0x8F1BBCDC)
    STEP(e1, a1, b1, c1, d1, IF_LAST, 10, 15, 0x8F1BBCDC)
    STEP(d1, e1, a1, b1, c1, IF_LAST, 0, 14, 0x8F1BBCDC)
    STEP(c1, d1, e1, a1, b1, IF_LAST, 8, 15, 0x8F1BBCDC)
    STEP(b1, c1, d1, e1, a1, IF_LAST, 12, 9, 0x8F1BBCDC)
    STEP(a1, b1, c1, d1, e1, IF_LAST, 4, 8, 0x8F1BBCDC)
    STEP(e1, a1, b1, c1, d1, IF_LAST, 13, 9, 0x8F1BBCDC)
    STEP(d1, e1, a1, b1, c1, IF_LAST, 3, 14, 0x8F1BBCDC)
    STEP(c1, d1, e1, a1, b1, IF_LAST, 7, 5, 0x8F1BBCDC)
    STEP(b1, c1, d1, e1, a1, IF_LAST, 15, 6, 0x8F1BBCDC)
    STEP(a1, b1, c1, d1, e1, IF_LAST, 14, 8, 0x8F1BBCDC)
    STEP(e1, a1, b1, c1, d1, IF_LAST, 5, 6, 0x8F1BBCDC)
    STEP(d1, e1, a1, b1, c1, IF_LAST, 6, 5, 0x8F1BBCDC)
    STEP(c1, d1, e1, a1, b1, IF_LAST, 2, 12, 0x8F1BBCDC)
    STEP(b1, c1, d1, e1, a1, OR_NOT_LAST, 4, 9, 0xA953FD4E)
    STEP(a1, b1, c1, d1, e1, OR_NOT_LAST, 0, 15, 0xA953FD4E)
    STEP(e1, a1, b1, c1, d1, OR_NOT_LAST, 5, 5, 0xA953FD4E)
    STEP(d1, e1, a1, b1, c1, OR_NOT_LAST, 9, 11, 0xA953FD4E)
    STEP(c1, d1, e1, a1, b1, OR_NOT_LAST, 7, 6, 0xA953FD4E)
    STEP(b1, c1, d1, e1, a1, OR_NOT_LAST, 12, 8, 0xA953FD4E)
    STEP(a1, b1, c1, d1, e1, OR_NOT_LAST, 2, 13, 0xA953FD4E)
    STEP(e1, a1, b1, c1, d1, OR_NOT_LAST, 10, 12, 0xA953FD4E)
    STEP(d1, e1, a1, b1, c1, OR_NOT_LAST, 14, 5, 0xA953FD4E)
    STEP(c1, d1, e1, a1, b1, OR_NOT_LAST, 1, 12, 0xA953FD4E)
    STEP(b1, c1, d1, e1, a1, OR_NOT_LAST, 3, 13, 0xA953FD4E)
    STEP(a1, b1, c1, d1, e1, OR_NOT_LAST, 8, 14, 0xA953FD4E)
    STEP(e1, a1, b1, c1, d1, OR_NOT_LAST, 11, 11, 0xA953FD4E)
    STEP(d1, e1, a1, b1, c1, OR_NOT_LAST, 6, 8, 0xA953FD4E)
    STEP(c1, d1, e1, a1, b1, OR_NOT_LAST, 15, 5, 0xA953FD4E)
    STEP(b1, c1, d1, e1, a1, OR_NOT_LAST, 13, 6, 0xA953FD4E)
    STEP(a2, b2, c2, d2, e2, OR_NOT_LAST, 5, 8, 0x50A28BE6)
    STEP(e2, a2, b2, c2, d2, OR_NOT_LAST, 14, 9, 0x50A28BE6)
    STEP(d2, e2, a2, b2, c2, OR_NOT_LAST, 7, 9, 0x50A28BE6)
    STEP(c2, d2, e2, a2, b2, OR_NOT_LAST, 0, 11, 0x50A28BE6)
    STEP(b2, c2, d2, e2, a2, OR_NOT_LAST, 9, 13, 0x50A28BE6)
    STEP(a2, b2, c2, d2, e2, OR_NOT_LAST, 2, 15, 0x50A28BE6)
    STEP(e2, a2, b2, c2, d2, OR_NOT_LAST, 11, 15, 0x50A28BE6)
    STEP(d2, e2, a2, b2, c2, OR_NOT_LAST, 4, 5, 0x50A28BE6)
    STEP(c2, d2, e2, a2, b2, OR_NOT_LAST, 13, 7, 0x50A28BE6)
    STEP(b2, c2, d2, e2, a2, OR_NOT_LAST, 6, 7, 0x50A28BE6)
    STEP(a2, b2, c2, d2, e2, OR_NOT_LAST, 15, 8, 0x50A28BE6)
    STEP(e2, a2, b2, c2, d2, OR_NOT_LAST, 8, 11, 0x50A28BE6)
    STEP(d2, e2, a2, b2, c2, OR_NOT_LAST, 1, 14, 0x50A28BE6)
    STEP(c2, d2, e2, a2, b2, OR_NOT_LAST, 10, 14, 0x50A28BE6)
    STEP(b2, c2, d2, e2, a2, OR_NOT_LAST, 3, 12, 0x50A28BE6)
    STEP(a2, b2, c2, d2, e2, OR_NOT_LAST, 12, 6, 0x50A28BE6)
    STEP(e2, a2, b2, c2, d2, IF_LAST, 6, 9, 0x5C4DD124)
    STEP(d2, e2, a2, b2, c2, IF_LAST, 11, 13, 0x5C4DD124)
    STEP(c2, d2, e2, a2, b2, IF_LAST, 3, 15, 0x5C4DD124)
    STEP(b2, c2, d2, e2, a2, IF_LAST, 7, 7, 0x5C4DD124)
    STEP(a2, b2, c2, d2, e2, IF_LAST, 0, 12, 0x5C4DD124)
    STEP(e2, a2, b2, c2, d2, IF_LAST, 13, 8, 0x5C4DD124)
    STEP(d2, e2, a2, b2, c2, IF_LAST, 5, 9, 0x5C4DD124)
    STEP(c2, d2, e2, a2, b2, IF_LAST, 10, 11, 0x5C4DD124)
    STEP(b2, c2, d2, e2, a2, IF_LAST, 14, 7, 0x5C4DD124)
    STEP(a2, b2, c2, d2, e2, IF_LAST, 15, 7, 0x5C4DD124)
    STEP(e2, a2, b2, c2, d2, IF_LAST, 8, 12, 0x5C4DD124)
    STEP(d2, e2, a2, b2, c2, IF_LAST, 12, 7, 0x5C4DD124)
    STEP(c2, d2, e2, a2, b2, IF_LAST, 4, 6, 0x5C4DD124)
    STEP(b2, c2, d2, e2, a2, IF_LAST, 9, 15, 0x5C4DD124)
    STEP(a2, b2, c2, d2, e2, IF_LAST, 1, 13, 0x5C4DD124)
    STEP(e2, a2, b2, c2, d2, IF_LAST, 2, 11, 0x5C4DD124)
    STEP(d2, e2, a2, b2, c2, OR_NOT, 15, 9, 0x6D703EF3)
    STEP(c2, d2, e2, a2, b2, OR_NOT, 5, 7, 0x6D703EF3)
    STEP(b2, c2, d2, e2, a2, OR_NOT, 1, 15, 0x6D703EF3)
    STEP(a2, b2, c2, d2, e2, OR_NOT, 3, 11, 0x6D703EF3)
    STEP(e2, a2, b2, c2, d2, OR_NOT, 7, 8, 0x6D703EF3)
    STEP(d2, e2, a2, b2, c2, OR_NOT, 14, 6, 0x6D703EF3)
    STEP(c2, d2, e2, a2, b2, OR_NOT, 6, 6, 0x6D703EF3)
    STEP(b2, c2, d2, e2, a2, OR_NOT, 9, 14, 0x6D703EF3)
    STEP(a2, b2, c2, d2, e2, OR_NOT, 11, 12, 0x6D703EF3)
    STEP(e2, a2, b2, c2, d2, OR_NOT, 8, 13, 0x6D703EF3)
    STEP(d2, e2, a2, b2, c2, OR_NOT, 12, 5, 0x6D703EF3)
    STEP(c2, d2, e2, a2, b2, OR_NOT, 2, 14, 0x6D703EF3)
    STEP(b2, c2, d2, e2, a2, OR_NOT, 10, 13, 0x6D703EF3)
    STEP(a2, b2, c2, d2, e2, OR_NOT, 0, 13, 0x6D703EF3)
    STEP(e2, a2, b2, c2, d2, OR_NOT, 4, 7, 0x6D703EF3)
    STEP(d2, e2, a2, b2, c2, OR_NOT, 13, 5, 0x6D703EF3)
    STEP(c2, d2, e2, a2, b2, IF, 8, 15, 0x7A6D76E9)
    STEP(b2, c2, d2, e2, a2, IF, 6, 5, 0x7A6D76E9)
    STEP(a2, b2, c2, d2, e2, IF, 4, 8, 0x7A6D76E9)
    STEP(e2, a2, b2, c2, d2, IF, 1, 11, 0x7A6D76E9)
    STEP(d2, e2, a2, b2, c2, IF, 3, 14, 0x7A6D76E9)
    STEP(c2, d2, e2, a2, b2, IF, 11, 14, 0x7A6D76E9)
    STEP(b2, c2, d2, e2, a2, IF, 15, 6, 0x7A6D76E9)
    STEP(a2, b2, c2, d2, e2, IF, 0, 14, 0x7A6D76E9)
    STEP(e2, a2, b2, c2, d2, IF, 5, 6, 0x7A6D76E9)
    STEP(d2, e2, a2, b2, c2, IF, 12, 9, 0x7A6D76E9)
    STEP(c2, d2, e2, a2, b2, IF, 2, 12, 0x7A6D76E9)
    STEP(b2, c2, d2, e2, a2, IF, 13, 9, 0x7A6D76E9)
    STEP(a2, b2, c2, d2, e2, IF, 9, 12, 0x7A6D76E9)
    STEP(e2, a2, b2, c2, d2, IF, 7, 5, 0x7A6D76E9)
    STEP(d2, e2, a2, b2, c2, IF, 10, 15, 0x7A6D76E9)
    STEP(c2, d2, e2, a2, b2, IF, 14, 8, 0x7A6D76E9)
    STEP(b2, c2, d2, e2, a2, XOR, 12, 8, 0x00000000)
    STEP(a2, b2, c2, d2, e2, XOR, 15, 5, 0x00000000)
    STEP(e2, a2, b2, c2, d2, XOR, 10, 12, 0x00000000)
    STEP(d2, e2, a2, b2, c2, XOR, 4, 9, 0x00000000)
    STEP(c2, d2, e2, a2, b2, XOR, 1, 12, 0x00000000)
    STEP(b2, c2, d2, e2, a2, XOR, 5, 5, 0x00000000)
    STEP(a2, b2, c2, d2, e2, XOR, 8, 14, 0x00000000)
    STEP(e2, a2, b2, c2, d2, XOR, 7, 6, 0x00000000)
    STEP(d2, e2, a2, b2, c2, XOR, 6, 8, 0x00000000)
    STEP(c2, d2, e2, a2, b2, XOR, 2, 13, 0x00000000)
    STEP(b2, c2, d2, e2, a2, XOR, 13, 6, 0x00000000)
    STEP(a2, b2, c2, d2, e2, XOR, 14, 5, 0x00000000)
    STEP(e2, a2, b2, c2, d2, XOR, 0, 15, 0x00000000)
    STEP(d2, e2, a2, b2, c2, XOR, 3, 13, 0x00000000)
    STEP(c2, d2, e2, a2, b2, XOR, 9, 11, 0x00000000)
    STEP(b2, c2, d2, e2, a2, XOR, 11, 11, 0x00000000)
    uint sum = state[1] + c1 + d2;
    state[1] = state[2] + d1 + e2;
    state[2] = state[3] + e1 + a2;
    state[3] = state[4] + a1 + b2;
    state[4] = state[0] + b1 + c2;
    state[0] = sum;
}

void finish() {
#define PUT_WORD(j) digest[j] = state[j];
    EACH_OF(5, PUT_WORD)
}

#include "hash_messages.glsl"
