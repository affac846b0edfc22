// Vectors of NEIGHBOURS elements that lie beside each other, where kernels have one element: 16
// bytes, the most that one load brings. With 4 an NVIDIA H200 added at 3.0 TB/s and squared at 2.2,
// where it copies at 4.0. Lavapipe does half as much again with four words, a fifth with two pairs.
//
// Elements that are left over behind the last full vector are taken alone, as vectors of which only
// the first number is stored. Arrays begin at a multiple of 16 bytes.

// Whether it is an element that is loaded and stored, by its own number (grid.glsl).
bool alone;

#define ELEMENTS_VIEW(at, name, access)                                        \
    NUMBERS_VIEW(at, name, access)                                             \
    layout(set = 0, binding = at, std430) access buffer name##_Vectors {       \
        NUMBERS name##_vectors[];                                              \
    };
#define ELEMENTS_LOAD(name)                            \
    void load_##name(uint i, out NUMBERS x) {          \
        if (alone) x = NUMBERS(name##_numbers[i]);     \
        else x = name##_vectors[i];                    \
    }
#define ELEMENTS_STORE(name)                           \
    void store_##name(uint i, NUMBERS x) {             \
        if (alone) name##_numbers[i] = x[0];           \
        else name##_vectors[i] = x;                    \
    }

#define EACH_NEIGHBOUR(k) [[unroll]] for (uint k = 0; k < NEIGHBOURS; ++k)

void f_add(NUMBERS x, NUMBERS y, out NUMBERS z) { EACH_NEIGHBOUR(k) f_add(x[k], y[k], z[k]); }
void f_sub(NUMBERS x, NUMBERS y, out NUMBERS z) { EACH_NEIGHBOUR(k) f_sub(x[k], y[k], z[k]); }
void f_neg(NUMBERS x, out NUMBERS z) { EACH_NEIGHBOUR(k) f_neg(x[k], z[k]); }
void f_mul(NUMBERS x, NUMBERS y, out NUMBERS z) { EACH_NEIGHBOUR(k) f_mul(x[k], y[k], z[k]); }
void f_square(NUMBERS x, out NUMBERS z) { EACH_NEIGHBOUR(k) f_square(x[k], z[k]); }
