// Packed kernels: ELEMENT is a vector of PACKED adjacent elements, 16 bytes, the most that one load
// instruction moves. With loads of 4 bytes, an NVIDIA H200 added at 3.0 TB/s and squared at 2.2
// TB/s; it copies at 4.0 TB/s. With packing, lavapipe becomes 1.5 times as fast with four 32-bit
// elements, 1.2 times with two 64-bit ones.
//
// Elements after the last full vector are processed one at a time, as vectors whose first component
// alone is stored. Arrays must begin at a multiple of 16 bytes.

// Whether load and store access a single element by its own index (set by grid.glsl).
bool single;

#define ELEMENTS_VIEW(at, name, access)                                        \
    SCALARS_VIEW(at, name, access)                                             \
    layout(set = 0, binding = at, std430) access buffer name##_Vectors {       \
        VECTOR name##_vectors[];                                               \
    };
#define ELEMENTS_LOAD(name)                            \
    void load_##name(uint i, out VECTOR x) {           \
        if (single) x = VECTOR(name##_scalars[i]);     \
        else x = name##_vectors[i];                    \
    }
#define ELEMENTS_STORE(name)                           \
    void store_##name(uint i, VECTOR x) {              \
        if (single) name##_scalars[i] = x[0];          \
        else name##_vectors[i] = x;                    \
    }

#define EACH_COMPONENT(k) [[unroll]] for (uint k = 0; k < PACKED; ++k)

void f_one(out VECTOR z) { EACH_COMPONENT(k) f_one(z[k]); }
void f_add(VECTOR x, VECTOR y, out VECTOR z) { EACH_COMPONENT(k) f_add(x[k], y[k], z[k]); }
void f_sub(VECTOR x, VECTOR y, out VECTOR z) { EACH_COMPONENT(k) f_sub(x[k], y[k], z[k]); }
void f_neg(VECTOR x, out VECTOR z) { EACH_COMPONENT(k) f_neg(x[k], z[k]); }
void f_mul(VECTOR x, VECTOR y, out VECTOR z) { EACH_COMPONENT(k) f_mul(x[k], y[k], z[k]); }
void f_square(VECTOR x, out VECTOR z) { EACH_COMPONENT(k) f_square(x[k], z[k]); }
