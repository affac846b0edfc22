// The signed digits of a number of DIGIT_WORDS words, each of one word: the bucket in its window, or
// 2^(window_bits - 1) for a digit of 0, and NEGATIVE for a negative digit. The digits of a window are
// neighbours. sort_scatter.glsl makes keys and entries of them.
//
// Include bucket_keys.glsl first, and declare the push words `windows` and `window_bits` and the buffer
// `digits`.

// Writes the digits from place `at` on, each `stride` places behind the one before. The number is shifted,
// since a variable index into it would put it in memory.
void store_digits(uint z[DIGIT_WORDS], uint at, uint stride) {
    uint buckets = 1u << (window_bits - 1), carry = 0;
    for (uint w = 0; w < windows; ++w, at += stride) {
        bool negative;
        uint size = take_digit(z[0], buckets, carry, negative);
        digits[at] = size == 0 ? buckets : negative ? size - 1 | NEGATIVE : size - 1;
        [[unroll]] for (uint i = 0; i < DIGIT_WORDS; ++i) {
            uint above = i + 1 < DIGIT_WORDS ? z[i + 1] : 0;
            z[i] = z[i] >> window_bits | above << (32 - window_bits);
        }
    }
}
