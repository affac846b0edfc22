// The rounds of BLAKE2s and BLAKE3, on a matrix of 16 words; both take words of `block` in their orders.

uint v[16];

#define MIX(a, b, c, d, x, y)                                                                  \
    v[a] += v[b] + block[x];                                                                   \
    v[d] = rotate_right(v[d] ^ v[a], 16);                                                      \
    v[c] += v[d];                                                                              \
    v[b] = rotate_right(v[b] ^ v[c], 12);                                                      \
    v[a] += v[b] + block[y];                                                                   \
    v[d] = rotate_right(v[d] ^ v[a], 8);                                                       \
    v[c] += v[d];                                                                              \
    v[b] = rotate_right(v[b] ^ v[c], 7);
#define BLAKE_ROUND(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)      \
    MIX(0, 4, 8, 12, m0, m1) MIX(1, 5, 9, 13, m2, m3)                                          \
    MIX(2, 6, 10, 14, m4, m5) MIX(3, 7, 11, 15, m6, m7)                                        \
    MIX(0, 5, 10, 15, m8, m9) MIX(1, 6, 11, 12, m10, m11)                                      \
    MIX(2, 7, 8, 13, m12, m13) MIX(3, 4, 9, 14, m14, m15)

// The first words of the fractions of square roots, as in SHA-256.
#define BLAKE_IV uint[8](                                                                      \
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
