// The inverse of a number modulo p, by division steps (Bernstein and Yang, "Fast constant-time gcd
// computation and modular inversion"; the variant whose delta begins with 1/2).
//
// Beginning with f = p and g = x, a division step replaces (f, g) by (f, g / 2), (f, (g + f) / 2) or
// (g, (g - f) / 2), so that g stays an integer, until g is 0. Then f is 1 or -1. LIMB_BITS
// steps depend on the lowest LIMB_BITS bits of f and g alone. Together they are a matrix, which is then
// applied to f and g, and to d and e with d x = f and e x = g mod p.
//
// On 9 limbs this takes as long as 45 products. Fermat's little theorem takes some 300.
//
// Include products.glsl first. Numbers with a sign have it in their topmost limb.

#ifndef MODULUS_LIMB
#define MODULUS_LIMB(i) modulus[i]
#endif
#define SIGNED_NUMBER int[LIMBS]

// LIMB_BITS division steps: the matrix (u, v; q, r) times 2^LIMB_BITS. `zeta` is -(delta + 1/2).
void divide_steps(inout int zeta, uint f, uint g, out int u, out int v, out int q, out int r) {
    uint fu = 1, fv = 0, gq = 0, gr = 1; // modulo 2^32: f = fu F + fv G, g = gq F + gr G, times 2^steps
    for (uint i = 0; i < LIMB_BITS; ++i) {
        uint swaps = uint(zeta >> 31), odd = 0u - (g & 1u);
        // g plus or minus f, if g is odd
        g += ((f ^ swaps) - swaps) & odd;
        gq += ((fu ^ swaps) - swaps) & odd;
        gr += ((fv ^ swaps) - swaps) & odd;
        swaps &= odd;
        zeta = (zeta ^ int(swaps)) - 1;
        // f becomes the g of before, which is this g plus f
        f += g & swaps;
        fu += gq & swaps;
        fv += gr & swaps;
        g >>= 1;
        fu <<= 1;
        fv <<= 1;
    }
    u = int(fu);
    v = int(fv);
    q = int(gq);
    r = int(gr);
}

// (f, g) = (u f + v g, q f + r g) / 2^LIMB_BITS, which is exact.
void apply_to_values(int u, int v, int q, int r, inout SIGNED_NUMBER f, inout SIGNED_NUMBER g) {
    int64_t a = 0, b = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        a += int64_t(u) * f[i] + int64_t(v) * g[i];
        b += int64_t(q) * f[i] + int64_t(r) * g[i];
        if (i > 0) {
            f[i - 1] = int(a) & int(LIMB_MASK);
            g[i - 1] = int(b) & int(LIMB_MASK);
        }
        a >>= LIMB_BITS;
        b >>= LIMB_BITS;
    }
    f[LIMBS - 1] = int(a);
    g[LIMBS - 1] = int(b);
}

// The largest n up to m for which `low` + n p is divisible by 2^LIMB_BITS.
int find_multiple(int m, int64_t low) {
    return m - int((uint(m) - uint(low) * NEGATIVE_INVERSE) & LIMB_MASK);
}

// The same modulo p, for numbers between -2p and p, which they stay: p is added where d or e is
// negative, and a multiple that makes the sum divisible by 2^LIMB_BITS is subtracted.
void apply_modulo(int u, int v, int q, int r, inout SIGNED_NUMBER d, inout SIGNED_NUMBER e) {
    int d_sign = d[LIMBS - 1] >> 31, e_sign = e[LIMBS - 1] >> 31;
    int64_t a = int64_t(u) * d[0] + int64_t(v) * e[0];
    int64_t b = int64_t(q) * d[0] + int64_t(r) * e[0];
    int m = find_multiple((u & d_sign) + (v & e_sign), a);
    int n = find_multiple((q & d_sign) + (r & e_sign), b);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        if (i > 0) {
            a += int64_t(u) * d[i] + int64_t(v) * e[i];
            b += int64_t(q) * d[i] + int64_t(r) * e[i];
        }
        a += int64_t(m) * int(MODULUS_LIMB(i));
        b += int64_t(n) * int(MODULUS_LIMB(i));
        if (i > 0) {
            d[i - 1] = int(a) & int(LIMB_MASK);
            e[i - 1] = int(b) & int(LIMB_MASK);
        }
        a >>= LIMB_BITS;
        b >>= LIMB_BITS;
    }
    d[LIMBS - 1] = int(a);
    e[LIMBS - 1] = int(b);
}

// x + p if x is negative.
void make_less_negative(inout SIGNED_NUMBER x) {
    int sign = x[LIMBS - 1] >> 31, carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = x[i] + (int(MODULUS_LIMB(i)) & sign) + carry;
        bool topmost = i + 1 == LIMBS;
        x[i] = topmost ? limb : limb & int(LIMB_MASK);
        carry = limb >> LIMB_BITS;
    }
}

// -x if `sign` is -1; x if it is 0.
void negate_if(int sign, inout SIGNED_NUMBER x) {
    int carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = (x[i] ^ sign) - sign + carry;
        bool topmost = i + 1 == LIMBS;
        x[i] = topmost ? limb : limb & int(LIMB_MASK);
        carry = limb >> LIMB_BITS;
    }
}

// z = 1 / x mod p, below p, for an x below 2p that is not p; 0 if x is 0.
void invert_limbs(uint x[LIMBS], out uint z[LIMBS]) {
    SIGNED_NUMBER f, g, d, e;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        f[i] = int(MODULUS_LIMB(i));
        g[i] = int(x[i]);
        d[i] = 0;
        e[i] = i == 0 ? 1 : 0;
    }
    int zeta = -1, any;
    do {
        int u, v, q, r;
        divide_steps(zeta, uint(f[0]), uint(g[0]), u, v, q, r);
        apply_modulo(u, v, q, r, d, e);
        apply_to_values(u, v, q, r, f, g);
        any = 0;
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) any |= g[i];
    } while (any != 0);
    make_less_negative(d);
    negate_if(f[LIMBS - 1] >> 31, d);
    make_less_negative(d);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = uint(d[i]);
}
