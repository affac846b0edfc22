// How invocations find their elements, the same for every element-wise kernel.
//
// Constant 0 is the work-group size and constant 1 the number of elements an invocation takes; the
// plan chooses both. Neighbouring invocations take neighbouring elements, so that loads coalesce.
// What is compiled with -DNEIGHBOURS has vectors of elements in their place (neighbours.glsl).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER_INVOCATION = 1;

// Whether there may be fewer work-groups than `count` elements take: each then goes on with those
// that lie as far behind its first ones as the grid reaches.
layout(constant_id = 57) const bool STRIDES = true;

uint first_element() {
    return gl_WorkGroupID.x * (gl_WorkGroupSize.x * PER_INVOCATION) + gl_LocalInvocationID.x;
}

// As many elements as all work-groups take at once.
uint grid_elements() {
    return gl_NumWorkGroups.x * (gl_WorkGroupSize.x * PER_INVOCATION);
}

// Runs what follows for each element i that is this invocation's. No sum overflows: 2^32 bytes are
// the most that a binding has, so a count is far below 2^32.
#define EACH_ELEMENT(i)                                                                        \
    for (uint i##_first = first_element(); i##_first < count; i##_first += grid_elements())    \
        for (uint i = i##_first, i##_turn = 0; i##_turn < PER_INVOCATION && i < count;         \
             ++i##_turn, i += gl_WorkGroupSize.x)

#ifdef NEIGHBOURS
// Full vectors, and behind them elements that are left over. Two calls, so that a vector meets no
// condition but this one.
#define TAKEN (count / NEIGHBOURS + count % NEIGHBOURS)
#define TAKE(i)                                                                                \
    if (i < count / NEIGHBOURS) { alone = false; element_at(i); }                              \
    else if (i < TAKEN) { alone = true; element_at(count - (TAKEN - i)); }
#else
#define TAKEN count
#define TAKE(i) if (i < count) element_at(i);
#endif

// The main function of a kernel: what follows, for each element i. Where there is one at most,
// drivers see that the loop ends behind it; one that begins with a condition costs lavapipe a third
// of its 255-bit products a second.
#define ELEMENTWISE(i)                                                                         \
    void element_at(uint i);                                                                   \
    void main() {                                                                              \
        uint first = first_element(), turn = 0;                                                \
        do {                                                                                   \
            uint i = first + turn * gl_WorkGroupSize.x;                                        \
            TAKE(i)                                                                            \
            if (++turn == PER_INVOCATION) { first += grid_elements(); turn = 0; }              \
        } while (STRIDES ? first < TAKEN : turn != 0);                                         \
    }                                                                                          \
    void element_at(uint i)
