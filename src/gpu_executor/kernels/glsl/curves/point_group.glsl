// Operations on XYZZ points by groups of invocations: of one invocation on CPUs (SERIAL), of one for
// each number of a point on GPUs. Both have the same functions.
//
//     OPERANDS                                              declares the operands P and Q
//     load_name(PQ enabled, ...)                            loads one; returns whether it is infinity
//     add_points(PQ enabled, doubles, infinity, other)      P = P + Q or 2 P
//     double_points(PQ enabled, times, infinity)            P = 2^times P, on GPUs
//     store_name(PQ index, infinity)                        stores P
//     is_any(condition)                                     whether it holds for a group of the subgroup
//
// All groups of a subgroup call them together; a group that takes no part passes enabled = false.
#ifdef SERIAL
#include "point_serial.glsl"
#else
#include "point_lanes.glsl"
#endif
