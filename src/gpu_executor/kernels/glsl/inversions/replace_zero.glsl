// 0 has no inverse, so products have another element in its place: the one whose words are 1. Returns
// whether x was 0.
bool replace_zero(inout uint x[WORDS]) {
    bool is_zero = f_is_zero(x);
    // Mesa's lavapipe (22.3) crashes if x[0] alone is assigned.
    [[unroll]] for (uint k = 0; k < WORDS; ++k) x[k] = k == 0 && is_zero ? 1u : x[k];
    return is_zero;
}
