// A shader may take it that no number is NaN, so floats are compared as whole numbers: of negative
// ones all bits are inverted, of others the sign, which puts them in order from -inf to inf, with
// -0.0 below 0.0. Every NaN becomes 0, below them all, so that one makes the minimum NaN.
fn identity() -> u32 { return 0xffffffffu; }
fn combine(x: u32, y: u32) -> u32 { return min(x, y); }
fn from_memory(x: u32) -> u32 {
    if ((x & 0x7fffffffu) > 0x7f800000u) { return 0u; }
    return select(x | 0x80000000u, ~x, x >= 0x80000000u);
}
fn to_memory(x: u32) -> u32 {
    if (x == 0u) { return 0x7fc00000u; }
    return select(~x, x & 0x7fffffffu, x >= 0x80000000u);
}
