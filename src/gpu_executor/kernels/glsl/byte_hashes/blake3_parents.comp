// Levels of BLAKE3's tree: the parents of chaining values. A parent without a right child is its left
// child. With `is_root` the parents are digests. The options of the compiler choose where children are:
//
//     -DROWS       `children` values for each of many trees, and (children + 1) / 2 parents
//     -DMESSAGES   the table has the indices of the children of each parent, and whether it is a root; the
//                  indices are equal if there is one child
#version 460
#extension GL_GOOGLE_include_directive : require
#define BLOCK_WORDS 16
#define DIGEST_WORDS 8
#include "../grid.glsl"
#include "rotations.glsl"
#include "unrolling.glsl"

layout(push_constant) uniform Push { uint count; uint flags; uint is_root; uint children; uint key[8]; };
layout(set = 0, binding = 0, std430) readonly buffer Values { uvec4 values[]; };
#ifdef MESSAGES
layout(set = 0, binding = 1, std430) readonly buffer Table { uvec4 table[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Parents { uvec4 parents[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer Parents { uvec4 parents[]; };
#endif

uint block[BLOCK_WORDS];
#include "blake3_compression.glsl"

void join(uint left, uint right, bool root, uint target) {
    if (left == right) {
        parents[2 * target] = values[2 * left];
        parents[2 * target + 1] = values[2 * left + 1];
        return;
    }
#define TAKE_VALUE(first, at) {                                                                \
        uvec4 four = values[at];                                                               \
        block[first] = four.x;                                                                 \
        block[first + 1] = four.y;                                                             \
        block[first + 2] = four.z;                                                             \
        block[first + 3] = four.w;                                                             \
    }
    TAKE_VALUE(0, 2 * left)
    TAKE_VALUE(4, 2 * left + 1)
    TAKE_VALUE(8, 2 * right)
    TAKE_VALUE(12, 2 * right + 1)
    begin_key();
    compress_block(0, 0, 64, PARENT | (root ? ROOT : 0));
    parents[2 * target] = uvec4(chaining[0], chaining[1], chaining[2], chaining[3]);
    parents[2 * target + 1] = uvec4(chaining[4], chaining[5], chaining[6], chaining[7]);
}

ELEMENTWISE(i) {
#ifdef MESSAGES
    join(table[i].x, table[i].y, table[i].z != 0, i);
#else
    uint parents_of_tree = (children + 1) / 2;
    uint tree = i / parents_of_tree, parent = i % parents_of_tree;
    uint first = tree * children;
    join(first + 2 * parent, first + min(2 * parent + 1, children - 1), is_root != 0, i);
#endif
}
