// The digests of all messages, one invocation each. Before including this file define:
//
//     count_blocks(total)        the blocks of a message of so many bytes, at most 2 with -DFIXED
//     EXTRA_BLOCKS               0, or 1: a block behind them that absorb() makes itself
//     begin()                    the state before the first block
//     absorb(at, total, last)    takes `block`, which begins at the byte `at`
//     finish()                   makes `digest`

#ifndef EXTRA_BLOCKS
#define EXTRA_BLOCKS 0
#endif

#ifdef FIXED
ELEMENTWISE(i) {
    load_row(i);
    begin();
    EACH_OF(BLOCK_WORDS, LOAD_FIRST)
    const uint blocks = count_blocks(TOTAL_BYTES);
    absorb(0, TOTAL_BYTES, blocks == 1);
    if (blocks > 1) {
        EACH_OF(BLOCK_WORDS, LOAD_SECOND)
        absorb(BLOCK_BYTES, TOTAL_BYTES, true);
    }
    if (EXTRA_BLOCKS != 0) absorb(2 * BLOCK_BYTES, TOTAL_BYTES, false);
    finish();
    store_digest(i);
}
#else
void hash_message(uint base, uint bytes, uint target) {
    uint total = prefix_bytes + bytes, blocks = count_blocks(total);
    begin();
    for (uint b = 0; b < blocks + EXTRA_BLOCKS; ++b) {
        load_block(base, b * BLOCK_BYTES, total);
        absorb(b * BLOCK_BYTES, total, b + 1 == blocks);
    }
    finish();
    store_digest(target);
}

#ifdef MESSAGES
ELEMENTWISE(i) { hash_message(table[i].x, table[i].y, i); }
#else
// So many rows as have a multiple of 4 bytes are one element of a call on host arrays.
layout(constant_id = ID_ROWS_PER_ELEMENT) const uint ROWS_PER_ELEMENT = 1;

ELEMENTWISE(i) {
    for (uint r = 0; r < ROWS_PER_ELEMENT; ++r) {
        uint at = i * ROWS_PER_ELEMENT + r;
        hash_message(at * row_bytes, row_bytes, at);
    }
}
#endif
#endif
