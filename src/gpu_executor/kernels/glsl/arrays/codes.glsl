// The codes of types and operations. `make kernels` writes this file from the lists ElementCode and
// OperationCode in kernels/arrays.py: change those lists.

#ifndef ARRAY_CODES
#define ARRAY_CODES
#define TYPE_BOOL 0u
#define TYPE_UINT8 1u
#define TYPE_INT8 2u
#define TYPE_UINT16 3u
#define TYPE_INT16 4u
#define TYPE_UINT32 5u
#define TYPE_INT32 6u
#define TYPE_UINT64 7u
#define TYPE_INT64 8u
#define TYPE_FLOAT16 9u
#define TYPE_FLOAT32 10u
#define TYPE_FLOAT64 11u
#define OP_ADD 0u
#define OP_SUBTRACT 1u
#define OP_MULTIPLY 2u
#define OP_DIVIDE 3u
#define OP_FLOOR_DIVIDE 4u
#define OP_REMAINDER 5u
#define OP_BITWISE_AND 6u
#define OP_BITWISE_OR 7u
#define OP_BITWISE_XOR 8u
#define OP_LEFT_SHIFT 9u
#define OP_RIGHT_SHIFT 10u
#define OP_EQUAL 11u
#define OP_NOT_EQUAL 12u
#define OP_LESS 13u
#define OP_LESS_EQUAL 14u
#define OP_MINIMUM 15u
#define OP_MAXIMUM 16u
#define OP_LOGICAL_AND 17u
#define OP_LOGICAL_OR 18u
#define OP_LOGICAL_XOR 19u
#define OP_LOGICAL_NOT 20u
#define OP_NEGATIVE 21u
#define OP_ABSOLUTE 22u
#define OP_INVERT 23u
#endif
