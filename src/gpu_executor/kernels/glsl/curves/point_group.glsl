// The group law of curves: why it has five forms, and two of them, by groups of invocations.
//
// All forms have the formulas of the Explicit-Formulas Database and are complete: they treat equal points,
// opposite points and the point at infinity. They differ in how many additions run at the same time, and
// in what the processor is good at. M is a product, S a square; doublings of XYZZ points take 1M + 1S more
// if the coefficient a of the curve is not 0:
//
//     form                    adds              addition               doubling              on
//     add_pairs.comp          affine, affine    5M + 1S *              5M + 2S *             GPUs
//     point_mixed.glsl        XYZZ, affine      8M + 2S                as an addition        GPUs
//     point_mixed_f64.glsl    XYZZ, affine      8M + 2S                4M + 3S               GPUs
//     point_lanes.glsl        XYZZ, XYZZ        12M + 2S in 4 steps    6M + 3S in 3 steps    GPUs
//     point_serial.glsl       XYZZ, XYZZ        12M + 2S               6M + 3S               CPUs
//
//     * and a share of an inverse
//
// - add_pairs.comp has the fewest products, but a sum of affine points divides. So each invocation needs
//   many independent pairs that share one inversion, and all of them move through memory. That is worth
//   it for about 2^19 points and more (msm/stages.py), over prime fields, where the device
//   multiplies integer limbs: 2.5 to 2.7 G additions/s of BLS12-381 G1 on an NVIDIA H200, and 2.0 of
//   point_mixed.glsl.
// - point_mixed.glsl keeps a sum in the registers of an invocation, which adds one affine point after the
//   other without an inversion: the accumulation of many points (count_grouped_entries in msm/plan.py).
// - point_mixed_f64.glsl is the same on f64 limbs, whose numbers need other bounds and another Montgomery
//   factor: 5.0 instead of 4.4 G additions/s of BN254 G1. At 381 bits it needs too many registers.
// - point_lanes.glsl is for additions that wait for each other: reducing buckets, joining windows, few
//   points. A group of lanes computes the products of one addition at the same time, so that it takes as
//   long as 4 products, a doubling as long as 3. Both operands have denominators, as sums of sums do.
// - point_serial.glsl is for lavapipe, which compiles inlined products slowly: a table of steps has one
//   product in its code, and combine.comp is compiled in 0.7 s instead of 13 s.
//
// accumulate.comp is compiled with the last four. The other kernels include this file, which chooses
// between the last two: groups of one invocation for each number of a point, or of one invocation
// (SERIAL). Both have the same functions:
//
//     OPERANDS                                              declares the operands P and Q
//     load_name(PQ enabled, ...)                            loads one; returns whether it is infinity
//     add_points(PQ enabled, doubles, infinity, other)      P = P + Q or 2 P
//     double_points(PQ enabled, times, infinity)            P = 2^times P, on GPUs
//     store_name(PQ index, infinity)                        stores P
//     is_any(condition)                                     whether it holds for a group of the subgroup
//
// PQ passes the operands, and has its own comma: `p, q,` in point_lanes.glsl, nothing in
// point_serial.glsl, whose operands are in shared memory. All groups of a subgroup call these functions
// together; a group that takes no part passes enabled = false.
#ifdef SERIAL
#include "point_serial.glsl"
#else
#include "point_lanes.glsl"
#endif
