// Adds points to buckets. The entries are sorted by bucket: `keys` has the bucket of each entry, or NO_KEY
// behind those of a window, and `entries` the index of its point, with the bit NEGATIVE where the point is
// subtracted. Unless `indexed`, each entry is its own index, as behind affine rounds.
//
// Element t adds the entries from t * length on. It stores the sum of each run of equal keys. The
// sum of a run inside its entries goes to its bucket. A run that continues from the entries before,
// or into those behind, is a partial sum: the first goes to partial 2t - 1, the latter to 2t.
// Where one run has all entries of t, partial 2t has the key of the run and is EMPTY. So the partial
// sums of one bucket are neighbours; combine.comp adds them. The load is the same for all invocations
// whatever the scalars are.
//
// The options of the compiler choose a form of the group law (point_group.glsl):
//
//     none                  point_mixed.glsl        single invocations (DEGREE 2: pairs of lanes) add
//                                                   affine points
//     -DF64_LIMBS           point_mixed_f64.glsl    the same on f64 limbs
//     -DGROUPED             point_lanes.glsl        groups of lanes add points of 2 `coordinates`
//                                                   (affine) or 4 (XYZZ)
//     -DGROUPED -DSERIAL    point_serial.glsl       the same by single invocations, on CPUs
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../bucket_keys.glsl"
#include "coordinate.glsl"
CONSTANTS(3)
#if defined(GROUPED)
#include "point_group.glsl"
#elif defined(F64_LIMBS)
#include "point_mixed_f64.glsl"
#else
#include "point_mixed.glsl"
#endif

layout(push_constant) uniform Push {
    uint count; uint entry_count; uint length; uint coordinates; uint indexed;
};
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) readonly buffer Entries { uint entries[]; };
AFFINE_IN(2, points)
LIMBS_OUT(4, buckets)
layout(set = 0, binding = 5, std430) writeonly buffer PartialKeys { uint partial_keys[]; };
LIMBS_OUT(6, partials)

// The sum of a run, in the form of the group law that the options choose:
//
//     SUM                                       declares it
//     ADD_POINT(enabled, at, negative, again)   adds the point at an index, or subtracts it. `again` is
//                                               set if the point is equal to the sum, which is as it was
//                                               then: the same statement once more doubles it
//     store_name(PQ at, SUM_ARGUMENTS)          stores it
//
// These are macros: an argument that is an array costs copies at each call of a function.
#ifdef GROUPED
#define SUM OPERANDS bool sum_infinity;
#define SUM_ARGUMENTS sum_infinity
#define ADD_POINT(enabled, at, negative, again)                                               \
    bool infinity = load_points(PQ enabled, coordinates, at, negative);                       \
    add_points(PQ enabled, false, sum_infinity, infinity); // it doubles equal points itself
#else
#define SUM OPERANDS NUMBER sum_x, sum_y, sum_zz, sum_zzz; bool sum_infinity;
#define SUM_ARGUMENTS sum_x, sum_y, sum_zz, sum_zzz, sum_infinity
#define ADD_POINT(enabled, at, negative, again)                                               \
    NUMBER x, y;                                                                              \
    bool finite = enabled && load_points(at, negative, x, y);                                 \
    again = finite && add_affine(x, y, again, SUM_ARGUMENTS);
#endif

void main() {
    begin();
    EACH_GROUP(t) {
        SUM
        uint first = t * length, end = t < count ? min(first + length, entry_count) : 0;
        uint head = NO_KEY, tail = NO_KEY, key = first < end ? keys[first] : NO_KEY;
        bool continued = t > 0 && key != NO_KEY && keys[first - 1] == key, again = false;
        sum_infinity = true;
        for (uint j = 0; j < length;) {
            uint i = first + j;
            bool enabled = i < end && key != NO_KEY;
            uint entry = !enabled ? 0 : indexed != 0 ? entries[i] : i, index = entry & ~NEGATIVE;
            bool negative = (entry & NEGATIVE) != 0;
            ADD_POINT(enabled, index, negative, again)
            if (again) continue;
            uint next = i + 1 < entry_count ? keys[i + 1] : NO_KEY;
            bool continues = i + 1 == end && next == key;
            if (enabled && (next != key || continues)) {
                // The last entry of a run, or of t.
                if (continued) {
                    head = key;
                    if (continues) tail = key | EMPTY;
                    store_partials(PQ 2 * t - 1, SUM_ARGUMENTS);
                } else if (continues) {
                    tail = key;
                    store_partials(PQ 2 * t, SUM_ARGUMENTS);
                } else {
                    store_buckets(PQ key, SUM_ARGUMENTS);
                }
                sum_infinity = true;
                continued = false;
            }
            key = next;
            ++j;
        }
        if (t < count && lane() == 0) {
            if (t > 0) partial_keys[2 * t - 1] = head;
            partial_keys[2 * t] = tail;
        }
    }
}
