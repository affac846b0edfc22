// BLAKE2s with digests of 32 bytes and no key (RFC 7693).
#version 460
#extension GL_GOOGLE_include_directive : require
#define BLOCK_WORDS 16
#define DIGEST_WORDS 8
#include "message.glsl"
#include "blake_rounds.glsl"

uint state[8];

uint count_blocks(uint total) {
    return max(total / 64 + min(total % 64, 1), 1);
}

void begin() {
    state = BLAKE_IV;
    state[0] ^= 0x01010020;  // the length of a digest, no key, no tree
}

void absorb(uint at, uint total, bool last) {
    const uint iv[8] = BLAKE_IV;
#define BEGIN_ROUNDS(j) v[j] = state[j]; v[j + 8] = iv[j];
    EACH_OF(8, BEGIN_ROUNDS)
    v[12] ^= last ? total : at + 64;
    if (last) v[14] = ~v[14];
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    BLAKE_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
    BLAKE_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
    BLAKE_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
    BLAKE_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
    BLAKE_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
    BLAKE_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
    BLAKE_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
    BLAKE_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
    BLAKE_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
#define END_ROUNDS(j) state[j] ^= v[j] ^ v[j + 8];
    EACH_OF(8, END_ROUNDS)
}

void finish() {
#define PUT_WORD(j) digest[j] = state[j];
    EACH_OF(8, PUT_WORD)
}

#include "hash_messages.glsl"
