// The messages of a byte hash, and the words of their blocks. A message is the first `prefix_bytes` bytes
// of the word `prefix`, at most 4 of them, then a row of bytes.
//
// Buffers are read as words, so that no device needs 8-bit types. The options of the compiler choose
// where the rows are:
//
//     -DFIXED      rows of ROW_BYTES bytes, one behind the other: a multiple of 4, and a constant, so that
//                  what follows from it alone is computed by the compiler
//     -DROWS       rows of `row_bytes` bytes, one behind the other
//     -DMESSAGES   rows of different lengths: the table has the offset and the length of each, in bytes
//
// Before including this file, define BLOCK_WORDS and DIGEST_WORDS, PADDING for the byte that follows a
// message, unless it is 0, and HASH_PUSH for further push constants.

#include "../grid.glsl"
#include "rotations.glsl"
#include "unrolling.glsl"

#ifndef HASH_PUSH
#define HASH_PUSH
#endif
#ifndef PADDING
#define PADDING 0
#endif
#define BLOCK_BYTES (4 * BLOCK_WORDS)
#if BLOCK_WORDS == 16
#define BLOCK_UNITS 4
#elif BLOCK_WORDS == 32
#define BLOCK_UNITS 8
#endif
#if DIGEST_WORDS == 8
#define DIGEST_UNITS 2
#elif DIGEST_WORDS == 16
#define DIGEST_UNITS 4
#endif

layout(push_constant) uniform Push {
    uint count; uint row_bytes; uint prefix_bytes; uint prefix; HASH_PUSH
};
layout(set = 0, binding = 0, std430) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 0, std430) readonly buffer SourceBy4 { uvec4 source_by4[]; };
#ifdef MESSAGES
layout(set = 0, binding = 1, std430) readonly buffer Table { uvec4 table[]; };
#define DIGESTS_BINDING 2
#else
#define DIGESTS_BINDING 1
#endif
layout(set = 0, binding = DIGESTS_BINDING, std430) writeonly buffer Digests { uint digests[]; };
layout(set = 0, binding = DIGESTS_BINDING, std430) writeonly buffer DigestsBy4 { uvec4 digests_by4[]; };

// The block that the hash absorbs next, and in the end the digest, as little-endian words of bytes.
uint block[BLOCK_WORDS];
uint digest[DIGEST_WORDS];

#ifdef FIXED
layout(constant_id = ID_ROW_BYTES) const uint ROW_BYTES = 64;
layout(constant_id = ID_PREFIX_BYTES) const uint PREFIX_BYTES = 0;
// Whether the row is two digests, of which the smaller one is hashed first.
layout(constant_id = ID_SORTS) const bool SORTS = false;
const uint ROW_WORDS = ROW_BYTES / 4;
const uint TOTAL_BYTES = PREFIX_BYTES + ROW_BYTES;

uint row[2 * BLOCK_WORDS];

// Rows have 32 bytes, 64, or two digests. Few conditions: SwiftShader compiles each for long.
void load_row(uint i) {
#define CLEAR(k) row[k] = row[BLOCK_WORDS + k] = 0;
    EACH_OF(BLOCK_WORDS, CLEAR)
#ifdef DIGEST_UNITS
#define LOAD_4(k) {                                                                            \
        uvec4 four = source_by4[i * (ROW_WORDS / 4) + (k)];                                    \
        row[4 * (k)] = four.x;                                                                 \
        row[4 * (k) + 1] = four.y;                                                             \
        row[4 * (k) + 2] = four.z;                                                             \
        row[4 * (k) + 3] = four.w;                                                             \
    }
    EACH_OF(2, LOAD_4)
    if (ROW_WORDS > 8) { LOAD_4(2) LOAD_4(3) }
#if DIGEST_WORDS == 16
    if (ROW_WORDS > 16) { FOUR_FROM(LOAD_4, 4) }
#endif
#else
#define LOAD_1(k) row[k] = source[i * ROW_WORDS + (k)];
    EACH_OF(8, LOAD_1)
    if (ROW_WORDS > 8) { LOAD_1(8) LOAD_1(9) }
    if (ROW_WORDS > 10) { LOAD_1(10) LOAD_1(11) FOUR_FROM(LOAD_1, 12) }
#endif
    if (SORTS) {
        // Digests are compared as strings of bytes: the first byte decides, then the second.
        bool swaps = false;
#define COMPARE(k) {                                                                           \
        uint first = swap_bytes(row[DIGEST_WORDS - 1 - (k)]);                                  \
        uint second = swap_bytes(row[2 * DIGEST_WORDS - 1 - (k)]);                             \
        swaps = second < first || second == first && swaps;                                    \
    }
        EACH_OF(DIGEST_WORDS, COMPARE)
#define SWAP(k) {                                                                              \
        uint first = row[k], second = row[DIGEST_WORDS + (k)];                                 \
        row[k] = swaps ? second : first;                                                       \
        row[DIGEST_WORDS + (k)] = swaps ? first : second;                                      \
    }
        EACH_OF(DIGEST_WORDS, SWAP)
    }
}

// Word j of the message is the end of row word j - 1 and the beginning of row word j.
const uint SHIFT_UP = PREFIX_BYTES % 4 * 8;
const uint SHIFT_DOWN = (4 - PREFIX_BYTES) % 4 * 8;
const uint MASK_UP = PREFIX_BYTES == 4 ? 0 : 0xFFFFFFFF;
const uint MASK_DOWN = PREFIX_BYTES == 0 ? 0 : 0xFFFFFFFF;
const uint PADDING_WORD = uint(PADDING) << TOTAL_BYTES % 4 * 8;
const uint NO_PADDING = 0;

// With its padding; j is a constant.
uint get_message_word(uint j) {
    uint before = j == 0 ? prefix : row[j - 1] >> SHIFT_DOWN & MASK_DOWN;
    uint padding = j == TOTAL_BYTES / 4 ? PADDING_WORD : NO_PADDING;
    return before | row[j] << SHIFT_UP & MASK_UP | padding;
}

#define LOAD_FIRST(j) block[j] = get_message_word(j);
#define LOAD_SECOND(j) block[j] = get_message_word(BLOCK_WORDS + j);
#else

// The block of a message from its byte `at` on. The row begins at the byte `base`, and the message has
// `total` bytes, with its prefix. Bytes behind the message are 0, but for the padding.
void load_block(uint base, uint at, uint total) {
    uint start = base + at - prefix_bytes;
    uint end = base + (total - prefix_bytes);
    uint left = total > at ? total - at : 0;
    bool full = left >= BLOCK_BYTES;
#ifdef BLOCK_UNITS
    if (full && start % 16 == 0) {
#define LOAD_BLOCK_4(k) {                                                                      \
            uvec4 four = source_by4[start / 16 + (k)];                                         \
            block[4 * (k)] = four.x;                                                           \
            block[4 * (k) + 1] = four.y;                                                       \
            block[4 * (k) + 2] = four.z;                                                       \
            block[4 * (k) + 3] = four.w;                                                       \
        }
        EACH_OF(BLOCK_UNITS, LOAD_BLOCK_4)
    } else
#endif
    {
        // A binding ends with a whole word, of which the last bytes may be no bytes of a row. Words
        // behind the row are replaced by its last one.
        uint end_word = end / 4 + min(end % 4, 1);
        uint last_word = max(end_word, 1) - 1;
        uint shift = start % 4 * 8;
        uint low = source[min(start / 4, last_word)];
        // Before the first row, start + 4 wraps around to a byte of it.
#define LOAD_BLOCK_1(j) {                                                                      \
            uint high = source[min((start + 4 * (j) + 4) / 4, last_word)];                     \
            block[j] = low >> shift | high << 1 << (31 - shift);                               \
            low = high;                                                                        \
        }
        EACH_OF(BLOCK_WORDS, LOAD_BLOCK_1)
    }
    if (!full) {
        const uint none = 0, all = 0xFFFFFFFF;
        uint padding = uint(PADDING) << left % 4 * 8;
        uint padded = left / 4;
        if (at > total) padded = BLOCK_WORDS;
#define END_MESSAGE(j) {                                                                       \
            uint bytes = left - min(left, 4 * (j)), some = (1u << bytes % 4 * 8) - 1;          \
            uint mask = bytes < 4 ? some : all, added = padded == (j) ? padding : none;        \
            block[j] = block[j] & mask | added;                                                \
        }
        EACH_OF(BLOCK_WORDS, END_MESSAGE)
    }
    if (at == 0 && prefix_bytes != 0)
        block[0] = prefix | (prefix_bytes == 4 ? 0 : block[0] & 0xFFFFFFFF << 8 * prefix_bytes);
}
#endif

void store_digest(uint i) {
#ifdef DIGEST_UNITS
#define STORE_4(k)                                                                             \
    digests_by4[i * DIGEST_UNITS + (k)] = uvec4(                                               \
        digest[4 * (k)], digest[4 * (k) + 1], digest[4 * (k) + 2], digest[4 * (k) + 3]);
    EACH_OF(DIGEST_UNITS, STORE_4)
#else
#define STORE_1(k) digests[i * DIGEST_WORDS + (k)] = digest[k];
    EACH_OF(DIGEST_WORDS, STORE_1)
#endif
}
