// BLAKE3: the chaining values of chunks of 1,024 bytes, and with `is_root` the digests of messages of one
// chunk. Chunks of a row are elements one behind the other; their numbers begin at `first_chunk`. The table
// of messages has a chunk in each entry: the offset and the length of its bytes, its number, and whether
// it is a message.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#define BLOCK_WORDS 16
#define DIGEST_WORDS 8
#define HASH_PUSH uint flags; uint is_root; uint chunks; uint first_low; uint first_high; uint key[8];
#include "message.glsl"
#include "blake3_compression.glsl"

#define CHUNK_BYTES 1024

void store_chaining(uint i) {
#define PUT_WORD(j) digest[j] = chaining[j];
    EACH_OF(8, PUT_WORD)
    store_digest(i);
}

#ifdef FIXED
// A row of one or two blocks.
ELEMENTWISE(i) {
    const uint first = min(TOTAL_BYTES, BLOCK_BYTES), last = TOTAL_BYTES - first;
    const uint end = CHUNK_END | ROOT;
    load_row(i);
    begin_key();
    EACH_OF(BLOCK_WORDS, LOAD_FIRST)
    compress_block(0, 0, first, CHUNK_START | (last == 0 ? end : 0));
    if (last != 0) {
        EACH_OF(BLOCK_WORDS, LOAD_SECOND)
        compress_block(0, 0, last, end);
    }
    store_chaining(i);
}
#else
// The chunk of a message of `total` bytes that begins at its byte `at`.
void hash_chunk(uint base, uint at, uint total, uvec2 number, bool root, uint target) {
    uint bytes = min(total - at, CHUNK_BYTES);
    uint blocks = max((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES, 1);
    begin_key();
    [[dont_unroll]] for (uint b = 0; b < blocks; ++b) {
        bool last = b + 1 == blocks;
        load_block(base, at + b * BLOCK_BYTES, total);
        uint domain = (b == 0 ? CHUNK_START : 0) | (last ? CHUNK_END | (root ? ROOT : 0) : 0);
        compress_block(number.x, number.y, last ? bytes - b * BLOCK_BYTES : BLOCK_BYTES, domain);
    }
    store_chaining(target);
}

#ifdef MESSAGES
ELEMENTWISE(i) {
    uvec4 entry = table[i];
    hash_chunk(entry.x, 0, entry.y, uvec2(entry.z, 0), entry.w != 0, i);
}
#else
layout(constant_id = ID_ROWS_PER_ELEMENT) const uint ROWS_PER_ELEMENT = 1;

ELEMENTWISE(i) {
    for (uint r = 0; r < ROWS_PER_ELEMENT; ++r) {
        uint target = i * ROWS_PER_ELEMENT + r;
        uint row = target / chunks, chunk = target % chunks;
        uvec2 number = uvec2(first_low + chunk, first_high);
        if (number.x < chunk) ++number.y;
        hash_chunk(
            row * row_bytes, chunk * CHUNK_BYTES, prefix_bytes + row_bytes, number, is_root != 0, target);
    }
}
#endif
#endif
