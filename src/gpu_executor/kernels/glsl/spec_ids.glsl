// The ids of specialization constants. `make kernels` writes this file from the list SpecId in
// kernels/modules.py: change that list.

#ifndef SPEC_IDS
#define SPEC_IDS
#define ID_WORK_GROUP_SIZE 0
#define ID_PER_INVOCATION 1
#define ID_WORDS 2
#define ID_LIMBS 3
#define ID_LIMB_BITS 4
#define ID_NEGATIVE_INVERSE 5
#define ID_CHAIN_LENGTH 6
#define ID_BROADCAST 7
#define ID_ONE 8
#define ID_R_SQUARED 32
#define ID_GRID_STRIDE 57
#define ID_NEGATIVE_INVERSE_HIGH 58
#define ID_BY_BLOCK 59
#define ID_LEVELS 60
#define ID_COLUMNS 61
#define ID_TWIDDLES 62
#define ID_DIRECT 63
#define ID_REVERSES 64
#define ID_KEYS 65
#define ID_DIGIT_BITS 66
#define ID_ORDER 67
#define ID_INDICES 68
#define ID_SHARED_BINS 69
#define ID_A_IS_ZERO 70
#define ID_NONRESIDUE 71
#define ID_MODULUS 72
#define ID_STORED_LIMBS 100
#define ID_STORED_LIMB_BITS 101
#define ID_FACTOR_SHIFT 102
#define ID_ROOT_SHIFT 103
#define ID_PADS 104
#define ID_LOG_REPEATS 105
#define ID_RECIPROCAL 106
#define ID_RECIPROCAL_SHIFT 107
#define ID_SCALES 108
#define ID_REPEATS 109
#define ID_LOG_SUBGROUP 110
#define ID_UNIT_BITS 111
#define ID_ROW_BYTES 120
#define ID_PREFIX_BYTES 121
#define ID_SORTS 122
#define ID_DOUBLES 123
#define ID_ROWS_PER_ELEMENT 124
#define ID_DOMAIN 125
#define ID_WIDTH 140
#define ID_FULL_ROUNDS 141
#define ID_PARTIAL_ROUNDS 142
#define ID_EXPONENT 143
#define ID_UNROLLED 144
#define ID_CIRCULANT 145
#define ID_FEISTEL 146
#define ID_ROUNDS 147
#define ID_ODD_PART 148
#define ID_TWO_ADICITY 149
#define ID_SUM_LIMIT 150
#define ID_LANES 151
#define ID_DEGREE 170
#define ID_VALUES_DEGREE 171
#define ID_LOG_ARITY 172
#define ID_MIX 173
#define ID_DIAGONAL_CODES 180
#endif
