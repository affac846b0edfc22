// The bytes of an element in reverse order: from little-endian to big-endian, and back.

uint swap_bytes(uint x) {
    return x << 24 | (x & 0xFF00) << 8 | (x >> 8 & 0xFF00) | x >> 24;
}

void reverse_bytes(uint x[WORDS], out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = swap_bytes(x[WORDS - 1 - i]);
}
