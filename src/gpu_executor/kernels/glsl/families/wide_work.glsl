// Numbers in work as LIMBS limbs, below 2p. Whoever chooses the limbs sees to 4p < 2^(LIMBS *
// LIMB_BITS), so that sums and differences fit, and a difference can be multiplied as it is.

#define WORK uint[LIMBS]

uint w_two_p[LIMBS];

void w_begin() {
    uint p[LIMBS];
    load_modulus_limbs(p);
    uint carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint limb = 2 * p[i] + carry;
        carry = limb >> LIMB_BITS;
        w_two_p[i] = i + 1 < LIMBS ? limb & LIMB_MASK : limb;
    }
}

void w_from(ELEMENT x, out WORK z) { unpack(x, 0, z); }

void w_to(WORK x, out ELEMENT z) {
    uint p[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    reduce_once(x, p, reduced);
    pack(reduced, z);
}

void w_copy(WORK x, out WORK z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = x[i];
}

// The sum and the sum less 2p are made limb by limb, side by side.
void w_add(WORK x, WORK y, out WORK z) {
    uint sum[LIMBS], less[LIMBS];
    uint carry = 0;
    int borrow = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint limb = x[i] + y[i] + carry;
        carry = limb >> LIMB_BITS;
        sum[i] = i + 1 < LIMBS ? limb & LIMB_MASK : limb;
        int difference = int(sum[i]) - int(w_two_p[i]) + borrow;
        less[i] = uint(difference) & LIMB_MASK;
        borrow = difference >> LIMB_BITS;
    }
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = borrow < 0 ? sum[i] : less[i];
}

// x - y + 2p, which is below 4p.
void w_sub_loosely(WORK x, WORK y, out WORK z) {
    int carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = int(x[i] + w_two_p[i]) - int(y[i]) + carry;
        carry = limb >> LIMB_BITS;
        z[i] = i + 1 < LIMBS ? uint(limb) & LIMB_MASK : uint(limb);
    }
}

void w_sub(WORK x, WORK y, out WORK z) {
    uint loose[LIMBS], less[LIMBS];
    w_sub_loosely(x, y, loose);
    bool below = sub_limbs(loose, w_two_p, less);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = below ? loose[i] : less[i];
}

void w_mul(WORK x, WORK y, out WORK z) {
    uint result[LIMBS];
    product(x, y, result);
    w_copy(result, z);
}

void w_sub_mul(WORK x, WORK y, WORK w, out WORK z) {
    uint loose[LIMBS];
    w_sub_loosely(x, y, loose);
    w_mul(loose, w, z);
}

// Limbs of equal weight side by side: neighbouring invocations meet in no bank.
#define SHARED_WORK(name, size)                                                               \
    shared uint name##_limbs[LIMBS * (size)];                                                 \
    void put_##name(uint at, WORK x) {                                                        \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) name##_limbs[i * (size) + at] = x[i];     \
    }                                                                                         \
    void get_##name(uint at, out WORK x) {                                                    \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) x[i] = name##_limbs[i * (size) + at];     \
    }
