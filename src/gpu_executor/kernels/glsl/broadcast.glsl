// Operands that are shorter than the first one and begin again after `period` elements; one as long
// has the period 0.

// Known when the pipeline is made, so that equally long operands meet no division.
layout(constant_id = 7) const bool BROADCAST = false;

// Which element of an operand meets element i of the first one.
uint met_by(uint i, uint period) {
    if (!BROADCAST || period == 0) return i;
    return period == 1 ? 0 : i % period; // by one scalar is the usual case, and needs none either
}
