// Adds points to buckets. The entries are sorted by bucket: `keys` has the bucket of each entry, or NO_KEY
// behind those of a window, and `entries` the index of its point and, in the topmost bit, whether the
// point is subtracted. Unless `indexed`, each entry is its own index, as behind affine rounds.
//
// Element t adds the entries from t * length on. It stores the sum of each run of equal keys. The
// sum of a run inside its entries goes to its bucket. A run that continues from the entries before,
// or into those behind, is a partial sum: the first goes to partial 2t - 1, the latter to 2t.
// Where one run has all entries of t, partial 2t has the key of the run and is EMPTY. So the partial
// sums of one bucket are neighbours; combine.comp adds them. The load is the same for all invocations
// whatever the scalars are.
//
// With -DGROUPED a group of invocations does the additions of an element: on CPUs, for fields of
// degree 2, and for few points, where it takes less time until the sums are there. Groups add points
// of 2 `coordinates` (affine) or 4 (XYZZ), single invocations affine ones. With -DF64_LIMBS invocations
// multiply f64 limbs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(3)
#if defined(GROUPED)
#include "point_group.glsl"
#elif defined(F64_LIMBS)
#include "point_f64.glsl"
#else
#include "point.glsl"
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

const uint NO_KEY = 0xFFFFFFFF, EMPTY = 0x80000000, NEGATIVE = 0x80000000;

#ifdef GROUPED
#define SUM bool sum_infinity
#define SUM_ARGUMENTS sum_infinity
#else
#define SUM NUMBER sum_x, sum_y, sum_zz, sum_zzz; bool sum_infinity
#define SUM_ARGUMENTS sum_x, sum_y, sum_zz, sum_zzz, sum_infinity
#endif

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        uint first = t * length, end = t < count ? min(first + length, entry_count) : 0;
        uint head = NO_KEY, tail = NO_KEY, key = first < end ? keys[first] : NO_KEY;
        bool continued = t > 0 && key != NO_KEY && keys[first - 1] == key, doubles = false;
        SUM;
        sum_infinity = true;
        for (uint j = 0; j < length;) {
            uint i = first + j;
            bool enabled = i < end && key != NO_KEY;
            uint entry = !enabled ? 0 : indexed != 0 ? entries[i] : i, index = entry & ~NEGATIVE;
            bool negative = (entry & NEGATIVE) != 0;
#ifdef GROUPED
            bool infinity = load_points(PQ enabled, coordinates, index, negative);
            add_points(PQ enabled, false, sum_infinity, infinity);
#else
            NUMBER x, y;
            bool finite = enabled && load_points(index, negative, x, y);
            doubles = finite && add_affine(x, y, doubles, SUM_ARGUMENTS);
            if (doubles) continue; // the same entry once more
#endif
            uint next = i + 1 < entry_count ? keys[i + 1] : NO_KEY;
            bool continues = i + 1 == end && next == key;
            if (enabled && (next != key || continues)) {
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
