// The inverse of a number in Montgomery form. Include coordinate.glsl and declare CONSTANTS first.

#include "../inverse.glsl"

// z = 1 / x, below 2p, for an x below 2p that is not p; 0 if x is 0. With x = a M, that is
// M / a = 1 / (a M) times M^2.
void n_invert(NUMBER x, out NUMBER z) {
    NUMBER factor;
    invert_limbs(x, z);
    load_constant(FACTOR_CUBED, factor);
    mul_limbs(z, factor, z);
}
