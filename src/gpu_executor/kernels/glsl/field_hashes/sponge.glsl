// The sponge around a permutation: one invocation, or a group of them with GROUPED, absorbs a row of
// elements and writes its digest.
// The kernel defines `permute`, and includes this file last.
//
// The state begins as the first WIDTH numbers of `initial`; the next one, M^2 / R, converts elements to
// numbers of the family WIDE. Each of `blocks` permutations is preceded by
// `rate` elements of the row, which go to the state from index `first` on: they replace the numbers
// there or are added to them. Where the row has ended, the numbers of the state remain, or are set to
// zero. After the last of these permutations, and after each one more, `squeezed` numbers from index
// `output_first` on are elements of the digest, until there are `outputs`.
//
// `layout` has `first`, the mode, `output_first` and `squeezed`, eight bits each. The indices are the
// same for all invocations, but not known to the compiler: a loop over the state, which is unrolled,
// has conditions in the place of indices.

const uint KEEP = 0, CLEAR = 1, ADD = 2;
const uint MODE_MASK = 15, VECTORS = 128;

ELEMENTS_IN(0, row)
CONSTANTS_IN(1, initial)
ELEMENTS_OUT(3, digest)

uint sponge_row, sponge_block;

void begin_lane(uint lane) {
    NUMBER x;
    load_initial(lane, x);
    put_state(lane, x);
}

void to_number(ELEMENT element, out NUMBER z) {
#ifdef FAMILY_WIDE
    NUMBER limbs, factor;
    words_to_limbs(element, 0, limbs);
    load_initial(WIDTH, factor);
    n_mul(limbs, factor, z);
#else
    n_from_element(element, z);
#endif
}

void absorb_lane(uint lane) {
    uint place = lane - (sponge_layout & 255), at = sponge_block * rate + place;
    uint mode = sponge_layout >> 8 & MODE_MASK;
    if (place >= rate) return;
    NUMBER x;
    if (at < row_length) {
        ELEMENT element;
        load_row(sponge_row * row_length + at, element);
        to_number(element, x);
        if (mode == ADD) {
            NUMBER before;
            get_state(lane, before);
            n_add(before, x, x);
        }
        put_state(lane, x);
    } else if (mode == CLEAR) {
        n_zero(x);
        put_state(lane, x);
    }
}

void squeeze_lane(uint lane) {
    uint squeezed = sponge_layout >> 24, place = lane - (sponge_layout >> 16 & 255);
    uint at = (sponge_block + 1 - blocks) * squeezed + place;
    if (place >= squeezed || at >= outputs) return;
    NUMBER x;
    ELEMENT element;
    get_state(lane, x);
    n_to_element(x, element);
    store_digest(sponge_row * outputs + at, element);
}

#if !defined(FAMILY_WIDE) && !defined(GROUPED)
#define LOADS_VECTORS
// With VECTORS, all indices and lengths are multiples of the elements in a vector of 16 bytes, and elements
// replace numbers of the state.
layout(set = 0, binding = 0, std430) readonly buffer RowVectors { VECTOR row_vectors[]; };
layout(set = 0, binding = 3, std430) writeonly buffer DigestVectors { VECTOR digest_vectors[]; };
const uint PER_VECTOR = SCALARS_PER_VECTOR;

void absorb_vectors() {
    [[unroll]] for (uint lane = 0; lane + PER_VECTOR <= WIDTH; lane += PER_VECTOR) {
        uint place = lane - (sponge_layout & 255), at = sponge_block * rate + place;
        if (place < rate && at < row_length) {
            VECTOR elements = row_vectors[(sponge_row * row_length + at) / PER_VECTOR];
            [[unroll]] for (uint k = 0; k < PER_VECTOR; ++k) state[lane + k] = elements[k];
        }
    }
}

void squeeze_vectors() {
    [[unroll]] for (uint lane = 0; lane + PER_VECTOR <= WIDTH; lane += PER_VECTOR) {
        uint place = lane - (sponge_layout >> 16 & 255);
        if (place < outputs) {
            VECTOR elements;
            [[unroll]] for (uint k = 0; k < PER_VECTOR; ++k) elements[k] = state[lane + k];
            digest_vectors[(sponge_row * outputs + place) / PER_VECTOR] = elements;
        }
    }
}
#endif

void hash_row() {
    EACH_LANE(begin_lane, WIDTH)
    uint permutations = blocks + (outputs - 1) / (sponge_layout >> 24);
    for (sponge_block = 0; sponge_block < permutations; ++sponge_block) {
#ifdef LOADS_VECTORS
        if ((sponge_layout >> 8 & VECTORS) != 0) {
            absorb_vectors();
        } else
#endif
        if (sponge_block < blocks) { EACH_LANE(absorb_lane, WIDTH) }
        permute();
#ifdef LOADS_VECTORS
        if ((sponge_layout >> 8 & VECTORS) != 0) {
            if (sponge_block + 1 == blocks) squeeze_vectors();
        } else
#endif
        if (sponge_block + 1 >= blocks) { EACH_LANE(squeeze_lane, WIDTH) }
    }
}

#ifdef GROUPED
// All invocations of a work-group run the loop equally often.
void main() {
    for (uint first = gl_WorkGroupID.x * GROUPS; first < count; first += gl_NumWorkGroups.x * GROUPS) {
        sponge_row = first + gl_LocalInvocationID.x / LANES;
        own_lane = sponge_row < count ? gl_LocalInvocationID.x % LANES : LANES;
        hash_row();
    }
}
#else
void main() {
    EACH_ELEMENT(t) {
        sponge_row = t;
        hash_row();
    }
}
#endif
