// Rotations of words, and of 64-bit words as pairs (low, high): the only place that has them.

uint rotate_left(uint x, uint n) {
    return x << n | x >> (32 - n);
}

uint rotate_right(uint x, uint n) {
    return x >> n | x << (32 - n);
}

// n is a constant from 0 to 63.
uvec2 rotate_left_64(uvec2 x, uint n) {
    if (n >= 32) x = x.yx;
    n &= 31;
    return n == 0 ? x : x << n | x.yx >> (32 - n);
}

uint swap_bytes(uint x) {
    return rotate_left(x, 8) & 0x00FF00FF | rotate_left(x, 24) & 0xFF00FF00;
}
