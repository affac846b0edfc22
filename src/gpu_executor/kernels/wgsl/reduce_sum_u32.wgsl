// Sums are modulo 2^32.
fn identity() -> u32 { return 0u; }
fn combine(x: u32, y: u32) -> u32 { return x + y; }
fn from_memory(x: u32) -> u32 { return x; }
fn to_memory(x: u32) -> u32 { return x; }
