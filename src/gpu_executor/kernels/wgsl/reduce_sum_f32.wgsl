// The identity of float addition is -0.0: adding 0.0 would turn -0.0 into 0.0.
fn identity() -> f32 { return bitcast<f32>(0x80000000u); }
fn combine(x: f32, y: f32) -> f32 { return x + y; }
fn from_memory(x: f32) -> f32 { return x; }
fn to_memory(x: f32) -> f32 { return x; }
