// Shared by families whose elements are one integer of the device. Define its type SCALAR and the
// type VECTOR of 16 bytes of them before including this file.

#define ELEMENTS_IN(at, name) ELEMENTS_VIEW(at, name, readonly) ELEMENTS_LOAD(name)
#define ELEMENTS_OUT(at, name) ELEMENTS_VIEW(at, name, writeonly) ELEMENTS_STORE(name)
#define ELEMENTS_IN_OUT(at, name) ELEMENTS_VIEW(at, name, ) ELEMENTS_LOAD(name) ELEMENTS_STORE(name)

#define SCALARS_VIEW(at, name, access) \
    layout(set = 0, binding = at, std430) access buffer name##_Scalars { SCALAR name##_scalars[]; };

#ifdef PACKED
#define ELEMENT VECTOR
#else
#define ELEMENT SCALAR
#define ELEMENTS_VIEW SCALARS_VIEW
#define ELEMENTS_LOAD(name) \
    void load_##name(uint element, out SCALAR x) { x = name##_scalars[element]; }
#define ELEMENTS_STORE(name) \
    void store_##name(uint element, SCALAR x) { name##_scalars[element] = x; }
#endif

void f_zero(out SCALAR z) { z = 0; }
void f_copy(SCALAR x, out SCALAR z) { z = x; }
void f_select(bool condition, SCALAR x, SCALAR y, out SCALAR z) { z = condition ? x : y; }
bool f_is_zero(SCALAR x) { return x == 0; }
bool f_equal(SCALAR x, SCALAR y) { return x == y; }
