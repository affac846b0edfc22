// The matrices of Poseidon2 in the family WIDE, for states of two, three or four numbers: sums of
// numbers times small weights, which are reduced once.

// The weights are 16 in all at most, so a sum is below 34p with the product that an internal matrix
// adds. The quotient of the topmost limbs is that of the sum by p, or one less, where p has at least 16
// bits there, 22 of BN254: `hash_kernel` in kernels/field_hashes.py checks it.
const uint TOP_SHIFT = LIMB_BITS > 32 ? LIMB_BITS - 28 : 0;

void reduce_weighted(uint64_t t[LIMBS], out NUMBER z) {
    LIMB p[LIMBS];
    load_modulus_limbs(p);
    uint64_t carry = 0;
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        carry += t[k];
        z[k] = k + 1 < LIMBS ? LIMB(carry) & LIMB_MASK : LIMB(carry);
        carry >>= LIMB_BITS;
    }
    uint top = uint(z[LIMBS - 1] >> TOP_SHIFT), divisor = uint(p[LIMBS - 1] >> TOP_SHIFT) + 1;
    uint64_t quotient = uint64_t(top / divisor);
    int64_t borrow = 0;
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        int64_t limb = int64_t(z[k]) - int64_t(quotient * p[k]) + borrow;
        z[k] = LIMB(limb) & LIMB_MASK;
        borrow = limb >> LIMB_BITS;
    }
}

// The weights of a row are the digits of a number, the first column in the lowest one.
uint get_weights(uint row) {
    uint diagonal = 1u << (4 * row);
    if (!is_full) return 0x1111u + (HAS_BLOCKS ? 0 : row + 1 == WIDTH ? 2 * diagonal : diagonal);
    if (!HAS_BLOCKS) return 0x1111u + diagonal;
    if (CIRCULANT) return ((0x1132u << (4 * row)) | (0x1132u >> (16 - 4 * row))) & 0xffffu;
    return row == 0 ? 0x3175u : row == 1 ? 0x1164u : row == 2 ? 0x7531u : 0x6411u;
}

uint64_t weighted_sum[LIMBS];

void add_weighted(uint weights, uint lane) {
    NUMBER x;
    get_shared(lane, x);
    uint64_t weight = uint64_t(weights >> (4 * lane) & 15);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) weighted_sum[k] += weight * x[k];
}

void mix_lane(uint row) {
    NUMBER x, factor;
    uint weights = get_weights(row);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) weighted_sum[k] = 0;
    if (UNROLLED) {
        [[unroll]] for (uint lane = 0; lane < WIDTH; ++lane) add_weighted(weights, lane);
    } else {
        [[dont_unroll]] for (uint lane = 0; lane < WIDTH; ++lane) add_weighted(weights, lane);
    }
    if (HAS_BLOCKS && !is_full) {
        get_state(row, x);
        load_constant(DIAGONAL + row, factor);
        n_mul(x, factor, x);
        [[unroll]] for (uint k = 0; k < LIMBS; ++k) weighted_sum[k] += x[k];
    }
    reduce_weighted(weighted_sum, x);
    put_mixed(row, x);
}

void mix() {
    share_state();
    EACH_LANE(mix_lane, WIDTH)
    EACH_LANE(take_mixed, WIDTH)
}
