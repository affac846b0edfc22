// The last step of a pass of the radix sort: every key, and with PAIRS its value, goes to its place
// in the order of digits. Keys with equal digits keep their order.
//
// The offsets are the places of the first key of each digit in each tile: the exclusive scan of the
// histogram. They are not read if a row is a single tile.
//
// A work-group sorts a tile in shared memory first, and then stores it, so that adjacent
// invocations store to adjacent places. Every subgroup takes consecutive keys, as many at a time as
// it has invocations. Ballots tell each invocation which others have the same digit; the first of
// these adds their number to the subgroup's counter of that digit.
//
// Subgroups may have any size. There are COUNTER_ROWS rows of counters, one per subgroup. If there
// are more subgroups than rows, the subgroups take turns, and `digit_count` carries the counts on.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "group_scan.glsl"
#include "sort_digits.glsl"

// Whether the values are the positions of the keys, instead of those in memory.
layout(constant_id = ID_INDICES) const bool INDICES = false;

layout(set = 0, binding = 0, std430) readonly buffer Offsets { uint offsets[]; };
// What is moved: keys, pairs of keys and values (PAIRS), or packed digits (PACKED, sort_packed.glsl).
//
//     STORE_KEY(place, key)        stores a key, or what becomes of it
//     LOAD_VALUE(key, at)          the value of the key at place `at` of the tile; none if not defined
//     STORE_VALUE(place, value)    stores it
//     BEGIN_TILE, BEGIN_VALUES     what comes before the keys of a tile, and before their values
#define WORDS_IN(at, name)                                                                     \
    layout(set = 0, binding = at, std430) readonly buffer name##_ { uint name[]; };
#define WORDS_OUT(at, name)                                                                    \
    layout(set = 0, binding = at, std430) writeonly restrict buffer name##_ { uint name[]; };
#if defined(PAIRS)
WORDS_IN(1, keys)
WORDS_IN(2, values)
WORDS_OUT(3, sorted_keys)
WORDS_OUT(4, sorted_values)
#define STORE_KEY(place, key) sorted_keys[place] = key;
#define LOAD_VALUE(key, at) (INDICES ? tile.start + at : values[tile.start + at])
#define STORE_VALUE(place, value) sorted_values[place] = value;
#elif defined(PACKED)
#include "sort_packed.glsl"
#else
WORDS_IN(1, keys)
WORDS_OUT(2, sorted_keys)
#define STORE_KEY(place, key) sorted_keys[place] = key;
#endif

#ifndef BEGIN_TILE
#define BEGIN_TILE
#endif
#ifndef BEGIN_VALUES
#define BEGIN_VALUES
#endif

const uint COUNTER_ROWS = TILE / RADIX;

shared uint pool[TILE];           // rows of counters; then the tile in its new order
shared uint digit_starts[RADIX];  // the place in the tile of the first key of each digit
shared uint digit_bases[RADIX];   // what to add to a place in the tile

// The loops over an invocation's keys are unrolled, so that the keys stay in registers.
#define EACH_KEY(k) [[unroll]] for (uint k = 0; k < KEYS; ++k)

// Returns the number of keys of this subgroup with the same digit that are before this one, and
// counts the keys of all invocations of the subgroup. `row` is the subgroup's row of counters.
uint count_before(uint digit, uint row) {
    uvec4 peers = subgroupBallot(true);
    [[unroll]] for (uint bit = 0; bit < DIGIT_BITS; ++bit) {
        bool is_set = (digit >> bit & 1) != 0;
        uvec4 set = subgroupBallot(is_set);
        peers &= is_set ? set : ~set;
    }
    uint first = subgroupBallotFindLSB(peers), before = 0;
    if (gl_SubgroupInvocationID == first) {
        before = atomicAdd(pool[row + digit], subgroupBallotBitCount(peers));
    }
    // The next keys are counted after these.
    controlBarrier(
        gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease
    );
    return subgroupShuffle(before, first) + subgroupBallotExclusiveBitCount(peers);
}

void sort_tile(Tile tile) {
    uint lanes = count_lanes(), invocation = invocation_index();
    uint start = tile.start, length = tile.size;
    uint first = gl_SubgroupID * lanes * KEYS + gl_SubgroupInvocationID;
    BEGIN_TILE
    uint own[KEYS], place[KEYS];
    EACH_KEY(k) {
        uint at = first + k * lanes;
        own[k] = at < length ? keys[start + at] : last_key();
    }

    // The place of each key among those of its digit; invocation d counts the keys of digit d.
    uint digit_count = 0;
    for (uint turn = 0; turn < gl_NumSubgroups; turn += COUNTER_ROWS) {
        uint rows = min(gl_NumSubgroups - turn, COUNTER_ROWS);
        uint row = (gl_SubgroupID - turn) * RADIX;
        bool has_turn = gl_SubgroupID >= turn && gl_SubgroupID - turn < rows;
        for (uint i = invocation; i < rows * RADIX; i += gl_WorkGroupSize.x) pool[i] = 0;
        barrier();
        if (has_turn) {
            EACH_KEY(k) {
                place[k] = count_before(compute_digit(own[k], tile.row), row);
            }
        }
        barrier();
        if (invocation < RADIX) {
            for (uint r = 0; r < rows; ++r) {
                uint found = pool[r * RADIX + invocation];
                pool[r * RADIX + invocation] = digit_count;
                digit_count += found;
            }
        }
        barrier();
        if (has_turn) {
            EACH_KEY(k) place[k] += pool[row + compute_digit(own[k], tile.row)];
        }
        barrier();
    }

    // The place of each key in the tile: behind all smaller digits.
    uint total, digit_start = scan_group(digit_count, total);
    if (invocation < RADIX) {
        digit_starts[invocation] = digit_start;
        digit_bases[invocation] =
            row_tiles == 1 ? start : offsets[count_index(tile, invocation)] - digit_start;
    }
    barrier();
    EACH_KEY(k) {
        place[k] += digit_starts[compute_digit(own[k], tile.row)];
        pool[place[k]] = own[k];
    }
    barrier();
    // From the tile in its new order to memory: the keys, then the values in the same way.
    uint target[KEYS];
    EACH_KEY(k) {
        uint at = k * gl_WorkGroupSize.x + invocation, key = pool[at];
        target[k] = at + digit_bases[compute_digit(key, tile.row)];
        if (at < length) STORE_KEY(target[k], key)
    }
#ifdef STORE_VALUE
    barrier();
    BEGIN_VALUES
    EACH_KEY(k) {
        uint at = first + k * lanes;
        if (at < length) pool[place[k]] = LOAD_VALUE(own[k], at);
    }
    barrier();
    EACH_KEY(k) {
        uint at = k * gl_WorkGroupSize.x + invocation;
        if (at < length) STORE_VALUE(target[k], pool[at])
    }
#endif
    barrier();
}

void main() {
    EACH_TILE(i) sort_tile(find_tile(i));
}
