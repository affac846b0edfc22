// Elements along some axes of an array combined to one: sums, minima, maxima, whether any or all
// are true.
//
// Result o has `parts` segments of `length` elements each, the last one may be shorter. LANES
// neighbouring invocations combine a segment: lane l the elements l, l + LANES, ... in order, then
// the lanes by halves. Neighbouring segments are parts of one result, or with one lane those of
// neighbouring results, whose elements are neighbours in memory. The order of operations depends on
// the shape and the strides, and not on the device. Partial results have 32 or 64 bits.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "numbers.glsl"

layout(constant_id = ID_A_TYPE) const uint A_TYPE = TYPE_UINT32;
layout(constant_id = ID_RESULT_TYPE) const uint RESULT_TYPE = TYPE_UINT32;
layout(constant_id = ID_LANES) const uint LANES = 256;
// The axes that are combined: the last ones of `reduced_lengths`. Those before have length 1.
layout(constant_id = ID_AXES) const uint AXES = 4;

const uint INVOCATIONS = 256;
layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
    uint count;    // segments
    uint parts;
    uint length;
    uint reduced;  // elements of a result
    uint start;
    uint kept_lengths[4];
    uint kept_strides[4];
    uint reduced_lengths[4];
    uint reduced_strides[4];
};
layout(set = 0, binding = 0, std430) readonly buffer A { uint a_words[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Result { uint result[]; };

DEFINE_LOAD(a, a_words, A_TYPE)

shared NUMBER partials[INVOCATIONS];

NUMBER get_identity() {
    if (OPERATION == OP_LOGICAL_AND) return NUMBER(1);
    if (OPERATION == OP_MINIMUM) return HIGHEST;
    if (OPERATION == OP_MAXIMUM) return LOWEST;
    return NUMBER(0);
}

// The place of element i of the last `axes` axes, which begin at `at`.
uint walk(uint i, uint at, uint axes, uvec4 lengths, uvec4 strides) {
    [[unroll]] for (int axis = 3; axis >= 0; --axis) {
        if (4 - axis < int(axes)) {
            at += i % lengths[axis] * strides[axis];
            i /= lengths[axis];
        } else if (4 - axis == int(axes)) {
            at += i * strides[axis];
        }
    }
    return at;
}

NUMBER load(uint at) {
    NUMBER x = make_number(a_low(at), count_bytes(A_TYPE) == 8 ? a_high(at) : 0, A_TYPE);
    bool is_logical = OPERATION == OP_LOGICAL_AND || OPERATION == OP_LOGICAL_OR;
    return is_logical ? from_bool(is_true(x)) : x;
}

NUMBER combine(NUMBER x, NUMBER y) {
    if (OPERATION == OP_LOGICAL_AND) return x & y;
    if (OPERATION == OP_LOGICAL_OR) return x | y;
    return compute(x, y, IS_SIGNED, IS_SIGNED);
}

void main() {
    uint local = gl_LocalInvocationIndex, lane = local % LANES, own = local / LANES;
    uint held = INVOCATIONS / LANES;  // segments of a work-group
    uint results = count / parts;
    uint rounds = (count + held * gl_NumWorkGroups.x - 1) / (held * gl_NumWorkGroups.x);
    for (uint round = 0; round < rounds; ++round) {
        uint segment = (round * gl_NumWorkGroups.x + gl_WorkGroupID.x) * held + own;
        NUMBER value = get_identity();
        if (segment < count) {
            uint of = LANES == 1 ? segment % results : segment / parts;
            uint part = LANES == 1 ? segment / results : segment % parts;
            uint from = walk(of, start, 4, VECTOR(kept_lengths), VECTOR(kept_strides));
            uint first = part * length, end = min(first + length, reduced);
            for (uint i = first + lane; i < end; i += LANES) {
                uint at = walk(i, from, AXES, VECTOR(reduced_lengths), VECTOR(reduced_strides));
                value = combine(value, load(at));
            }
            if (LANES == 1) segment = of * parts + part;
        }
        if (LANES > 1) {
            barrier();  // the round before has read its partial results
            partials[local] = value;
            barrier();
            for (uint step = LANES / 2; step > 0; step /= 2) {
                if (lane < step) partials[local] = combine(partials[local], partials[local + step]);
                barrier();
            }
            value = partials[local];
        }
        if (segment < count && lane == 0) {
            if (count_bytes(RESULT_TYPE) == 8) {
                result[2 * segment] = get_low(value, RESULT_TYPE);
                result[2 * segment + 1] = get_high(value);
            } else {
                result[segment] = get_low(value, RESULT_TYPE);
            }
        }
    }
}
