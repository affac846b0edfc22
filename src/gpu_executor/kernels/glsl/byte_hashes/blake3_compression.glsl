// The compression function of BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: BLAKE3).

#include "blake_rounds.glsl"

const uint CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8;

uint chaining[8];

void begin_key() {
#define TAKE_KEY(j) chaining[j] = key[j];
    EACH_OF(8, TAKE_KEY)
}

void compress_block(uint counter_low, uint counter_high, uint bytes, uint domain) {
    const uint iv[8] = BLAKE_IV;
#define BEGIN_ROUNDS(j) v[j] = chaining[j];
    EACH_OF(8, BEGIN_ROUNDS)
    v[8] = iv[0];
    v[9] = iv[1];
    v[10] = iv[2];
    v[11] = iv[3];
    v[12] = counter_low;
    v[13] = counter_high;
    v[14] = bytes;
    v[15] = flags | domain;
    BLAKE_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    BLAKE_ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    BLAKE_ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)
    BLAKE_ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)
    BLAKE_ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)
    BLAKE_ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)
    BLAKE_ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)
#define END_ROUNDS(j) chaining[j] = v[j] ^ v[j + 8];
    EACH_OF(8, END_ROUNDS)
}
