// The state of a permutation in a group of LANES adjacent invocations of a work-group (GROUPED): lane
// i has number i in registers, and reads the others in shared memory.
//
// All invocations of a work-group reach each barrier. Lanes from WIDTH on, and those of groups without
// a row, run nothing between them (`own_lane`).
//
// There are two copies in shared memory, so that one barrier is enough each time: who writes a copy
// has passed the barrier behind all reads of its former numbers, that of the other copy.

// A power of two, and WIDTH at least.
layout(constant_id = ID_LANES) const uint LANES = 4;
const uint GROUPS = gl_WorkGroupSize.x / LANES;

// The index of this invocation's number, or LANES in a group without a row.
uint own_lane;
NUMBER own_number;
uint copy = 0;

#define EACH_LANE(run, end) if (own_lane < end) run(own_lane);

void get_state(uint lane, out NUMBER z) { n_copy(own_number, z); }
void put_state(uint lane, NUMBER x) { n_copy(x, own_number); }
void put_mixed(uint lane, NUMBER x) { n_copy(x, own_number); }
void take_mixed(uint lane) {}

// Adjacent invocations have adjacent words, so that they use different banks of the memory.
#ifdef FAMILY_WIDE
shared LIMB shared_limbs[2 * LIMBS * gl_WorkGroupSize.x];

uint find_shared(uint invocation) { return copy * LIMBS * gl_WorkGroupSize.x + invocation; }

void put_shared(uint invocation, NUMBER x) {
    uint at = find_shared(invocation);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) shared_limbs[at + k * gl_WorkGroupSize.x] = x[k];
}

void take_shared(uint invocation, out NUMBER z) {
    uint at = find_shared(invocation);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) z[k] = shared_limbs[at + k * gl_WorkGroupSize.x];
}
#else
shared ELEMENT shared_elements[2 * gl_WorkGroupSize.x];

uint find_shared(uint invocation) { return copy * gl_WorkGroupSize.x + invocation; }
void put_shared(uint invocation, NUMBER x) { shared_elements[find_shared(invocation)] = x; }
void take_shared(uint invocation, out NUMBER z) { z = shared_elements[find_shared(invocation)]; }
#endif

// Every invocation of the work-group calls these.
void share_number(NUMBER x) {
    copy ^= 1;
    put_shared(gl_LocalInvocationID.x, x);
    barrier();
}
void share_state() { share_number(own_number); }

// The number that a lane of the group has shared last.
void get_shared(uint lane, out NUMBER z) {
    take_shared((gl_LocalInvocationID.x & ~(LANES - 1)) + lane, z);
}
