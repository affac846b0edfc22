// Limbs of $bits bits in 32-bit registers, for the Montgomery product.
//
// WGSL has neither 64-bit integers nor carries, so a sum of products must fit 32 bits. The product
// of two 13-bit limbs is at most M = (2^13 - 1)^2, and 2^32 - 64 M is almost 2^20, so an
// accumulator holds 64 products and a carry, which is below 2^32 / 2^13 = 2^19. The product of two
// elements adds 2 * LIMBS products to an accumulator. Up to 32 limbs (13 words, 416 bits) need no
// carry before the end, and up to 60 limbs (24 words) need one carry pass midway. Nearly all the
// work then is multiply-adds of limbs. 14-bit limbs would be about 7 % fewer, but they need a carry
// pass every 7 rows; with 16 bits, every product would have to be split.

const LIMBS = ${limbs}u;
const BITS = ${bits}u;
const MASK = ${mask}u;

// The limb that begins at bit `offset` of `low`; two shifts, because a shift by 32 is undefined.
fn limb(low: u32, high: u32, offset: u32) -> u32 {
    return ((low >> offset) | ((high << 1u) << (31u - offset))) & MASK;
}

