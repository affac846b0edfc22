// The two passes of a sort of signed digits (window_digits.glsl) by their buckets, whose results are the keys
// and the entries of accumulate.comp. A row has the digits of a window, in the order of their points.
//
// Between the passes a digit and its point are one word, so that they take half of the memory:
//
//     upper DIGIT_BITS of the bucket | negative | point, in 31 - DIGIT_BITS bits
//
// The first pass sorts by the lower DIGIT_BITS of the bucket; the place behind it tells these (PACKS).
// The last pass sorts by the upper ones (UNPACKS). `row_base` is the number of buckets of a row.

#include "bucket_keys.glsl"

const uint POINT_BITS = 31 - DIGIT_BITS;

// The place of a key in its row.
#define ROW_PLACE(at) (tile.number * TILE + at)

#ifdef PACKS
WORDS_IN(1, keys)
WORDS_OUT(2, packed)
#define STORE_KEY(place, key) {}
#define LOAD_VALUE(key, at)                                                                    \
    ((key & ~NEGATIVE) >> DIGIT_BITS << (POINT_BITS + 1) | key >> 31 << POINT_BITS | ROW_PLACE(at))
#define STORE_VALUE(place, value) packed[place] = value;
#else
WORDS_IN(1, first_offsets) // of the first pass
WORDS_IN(2, keys)
WORDS_OUT(3, buckets)
WORDS_OUT(4, entries)

shared uint low_starts[RADIX]; // the place in the row of the first key with each lower half

// The lower half of the key at place `at` of the row.
uint find_low(uint at) {
    uint low = 0;
    for (uint step = RADIX / 2; step > 0; step /= 2) {
        if (low_starts[low + step] <= at) low += step;
    }
    return low;
}

// The bucket of a word at place `at` of the row; its lower half is at least `low`.
uint find_bucket(uint word, uint row, uint at, inout uint low) {
    while (low + 1 < RADIX && low_starts[low + 1] <= at) ++low;
    uint bucket = word >> (POINT_BITS + 1) << DIGIT_BITS | low;
    return bucket < row_base ? row * row_base + bucket : NO_KEY;
}

#define BEGIN_TILE                                                                             \
    for (uint d = invocation; d < RADIX; d += gl_WorkGroupSize.x) {                            \
        low_starts[d] = first_offsets[count_index(Tile(tile.row, 0, 0, 0), d)] - tile.row * row_length; \
    }
#define BEGIN_VALUES uint low = find_low(ROW_PLACE(first));
#define STORE_KEY(place, word)                                                                 \
    entries[place] = (word & (1u << POINT_BITS) - 1) | word >> POINT_BITS << 31;
#define LOAD_VALUE(word, at) find_bucket(word, tile.row, ROW_PLACE(at), low)
#define STORE_VALUE(place, value) buckets[place] = value;
#endif
