// Loads and stores of elements of WORDS words. Include words.glsl first.
//
// ELEMENTS_IN(0, a) declares binding 0 and load_a(i, x); ELEMENTS_OUT(2, c) declares binding 2 and
// store_c(i, x); ELEMENTS_IN_OUT declares both functions.
//
// Each buffer is declared three times: as single words, pairs and groups of four. Elements of 4, 8,
// 12 ... words move in 16-byte loads and stores (3.2 TB/s; 2.5 TB/s with 8-byte ones on an NVIDIA
// H200). WORDS is a specialization constant, so only one of the three remains in a pipeline.

#include "unit_memory.glsl"

#define WORDS_LOAD(name)                                                                      \
    void load_##name(uint element, out uint x[WORDS]) {                                       \
        if (WORDS % 4 == 0) {                                                                 \
            [[unroll]] for (uint i = 0; i < WORDS / 4; ++i) {                                 \
                uvec4 v = name##_by4[element * (WORDS / 4) + i];                              \
                x[4 * i] = v.x; x[4 * i + 1] = v.y; x[4 * i + 2] = v.z; x[4 * i + 3] = v.w;   \
            }                                                                                 \
        } else if (WORDS % 2 == 0) {                                                          \
            [[unroll]] for (uint i = 0; i < WORDS / 2; ++i) {                                 \
                uvec2 v = name##_by2[element * (WORDS / 2) + i];                              \
                x[2 * i] = v.x; x[2 * i + 1] = v.y;                                           \
            }                                                                                 \
        } else {                                                                              \
            [[unroll]] for (uint i = 0; i < WORDS; ++i) x[i] = name##_by1[element * WORDS + i]; \
        }                                                                                     \
    }

#define WORDS_STORE(name)                                                                     \
    void store_##name(uint element, uint x[WORDS]) {                                          \
        if (WORDS % 4 == 0) {                                                                 \
            [[unroll]] for (uint i = 0; i < WORDS / 4; ++i) {                                 \
                name##_by4[element * (WORDS / 4) + i] =                                       \
                    uvec4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);                \
            }                                                                                 \
        } else if (WORDS % 2 == 0) {                                                          \
            [[unroll]] for (uint i = 0; i < WORDS / 2; ++i) {                                 \
                name##_by2[element * (WORDS / 2) + i] = uvec2(x[2 * i], x[2 * i + 1]);        \
            }                                                                                 \
        } else {                                                                              \
            [[unroll]] for (uint i = 0; i < WORDS; ++i) name##_by1[element * WORDS + i] = x[i]; \
        }                                                                                     \
    }

#define ELEMENTS_IN(at, name) UNITS_VIEWS(at, name, readonly) WORDS_LOAD(name)
#define ELEMENTS_OUT(at, name) UNITS_VIEWS(at, name, writeonly) WORDS_STORE(name)
#define ELEMENTS_IN_OUT(at, name) UNITS_VIEWS(at, name, ) WORDS_LOAD(name) WORDS_STORE(name)
