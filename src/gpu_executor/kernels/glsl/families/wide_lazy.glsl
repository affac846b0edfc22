// Lazily reduced elements as LIMBS limbs: integers below 2p. The limb layout must satisfy
// 4p < 2^(LIMBS * LIMB_BITS), so that sums and differences fit and an unreduced difference can be
// multiplied.

#define LAZY uint[LIMBS]

uint two_p[LIMBS];

void lazy_begin() {
    uint p[LIMBS];
    load_modulus_limbs(p);
    uint carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint limb = 2 * p[i] + carry;
        carry = limb >> LIMB_BITS;
        two_p[i] = i + 1 < LIMBS ? limb & LIMB_MASK : limb;
    }
}

void lazy_from_element(ELEMENT x, out LAZY z) { words_to_limbs(x, 0, z); }

void lazy_to_element(LAZY x, out ELEMENT z) {
    uint p[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    reduce_once(x, p, reduced);
    limbs_to_words(reduced, z);
}

void lazy_copy(LAZY x, out LAZY z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = x[i];
}

// x + y, less 2p if it is at least 2p. Both candidates are computed in one pass over the limbs.
void lazy_add(LAZY x, LAZY y, out LAZY z) {
    uint sum[LIMBS], less[LIMBS];
    uint carry = 0;
    int borrow = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint limb = x[i] + y[i] + carry;
        carry = limb >> LIMB_BITS;
        sum[i] = i + 1 < LIMBS ? limb & LIMB_MASK : limb;
        int difference = int(sum[i]) - int(two_p[i]) + borrow;
        less[i] = uint(difference) & LIMB_MASK;
        borrow = difference >> LIMB_BITS;
    }
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = borrow < 0 ? sum[i] : less[i];
}

// x - y + 2p, which is between 0 and 4p.
void lazy_sub_unreduced(LAZY x, LAZY y, out LAZY z) {
    int carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = int(x[i] + two_p[i]) - int(y[i]) + carry;
        carry = limb >> LIMB_BITS;
        z[i] = i + 1 < LIMBS ? uint(limb) & LIMB_MASK : uint(limb);
    }
}

void lazy_sub(LAZY x, LAZY y, out LAZY z) {
    uint unreduced[LIMBS], less[LIMBS];
    lazy_sub_unreduced(x, y, unreduced);
    bool below = sub_limbs(unreduced, two_p, less);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = below ? unreduced[i] : less[i];
}

void lazy_mul(LAZY x, LAZY y, out LAZY z) {
    uint result[LIMBS];
    mul_limbs(x, y, result);
    lazy_copy(result, z);
}

void lazy_sub_mul(LAZY x, LAZY y, LAZY w, out LAZY z) {
    uint unreduced[LIMBS];
    lazy_sub_unreduced(x, y, unreduced);
    lazy_mul(unreduced, w, z);
}

// Limb i of all elements is contiguous, so adjacent invocations access different memory banks.
#define SHARED_LAZY(name, size)                                                               \
    shared uint name##_limbs[LIMBS * (size)];                                                 \
    void put_##name(uint at, LAZY x) {                                                        \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) name##_limbs[i * (size) + at] = x[i];     \
    }                                                                                         \
    void get_##name(uint at, out LAZY x) {                                                    \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) x[i] = name##_limbs[i * (size) + at];     \
    }
