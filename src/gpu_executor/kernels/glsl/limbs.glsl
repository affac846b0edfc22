// Elements as short limbs: cut from words and put back, compared, reduced. Include words.glsl
// first.
//
// A limb has LIMB_BITS = 28 to 30 bits in a 32-bit register, so the product of two leaves room in a
// 64-bit accumulator for several more: products.glsl makes use of that.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = 3) const uint LIMBS = 13;
layout(constant_id = 4) const uint LIMB_BITS = 30;

const uint LIMB_MASK = (1u << LIMB_BITS) - 1u;

// The modulus, where it is given as limbs.
void load_modulus_limbs(out uint p[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) p[i] = modulus[i];
}

// The limbs of x * 2^shift.
void unpack(uint x[WORDS], uint shift, out uint limbs[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        // Limb i begins at bit i * LIMB_BITS of x << shift; what lies outside x is zero.
        int bit = int(i * LIMB_BITS) - int(shift);
        int word = bit >> 5;
        uint low = (word >= 0 && word < int(WORDS)) ? x[max(word, 0)] : 0u;
        uint high = (word + 1 >= 0 && word + 1 < int(WORDS)) ? x[max(word + 1, 0)] : 0u;
        uint64_t pair = (uint64_t(high) << 32) | low;
        limbs[i] = uint(pair >> (bit & 31)) & LIMB_MASK;
    }
}

void pack(uint limbs[LIMBS], out uint x[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint limb = (32 * i) / LIMB_BITS;
        uint offset = (32 * i) % LIMB_BITS;
        uint64_t bits = uint64_t(limbs[limb]) >> offset;
        if (limb + 1 < LIMBS) bits |= uint64_t(limbs[limb + 1]) << (LIMB_BITS - offset);
        if (limb + 2 < LIMBS) bits |= uint64_t(limbs[limb + 2]) << (2 * LIMB_BITS - offset);
        x[i] = uint(bits);
    }
}

// x - y, limb by limb as signed numbers; returns whether it came out negative. The topmost limb of
// x may have one bit more than the others.
bool sub_limbs(uint x[LIMBS], uint y[LIMBS], out uint z[LIMBS]) {
    int borrow = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int difference = int(x[i]) - int(y[i]) + borrow;
        z[i] = uint(difference) & LIMB_MASK;
        borrow = difference >> LIMB_BITS;
    }
    return borrow < 0;
}

bool below_limbs(uint x[LIMBS], uint y[LIMBS]) {
    uint unused[LIMBS];
    return sub_limbs(x, y, unused);
}

// x mod p for an x below 2p.
void reduce_once(uint x[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint reduced[LIMBS];
    bool below = sub_limbs(x, p, reduced);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = below ? x[i] : reduced[i];
}
