// Broadcasting: an operand that is shorter than the first one repeats after `period` elements. The
// period 0 means that the operand is as long as the first one.

#include "spec_ids.glsl"

// A specialization constant, so that a kernel whose operands are equally long has no division.
layout(constant_id = ID_BROADCAST) const bool BROADCAST = false;

// The index of an operand's element that belongs to element i of the first operand.
uint broadcast_index(uint i, uint period) {
    if (!BROADCAST || period == 0) return i;
    return period == 1 ? 0 : i % period; // one scalar is the usual case; it needs no division
}
