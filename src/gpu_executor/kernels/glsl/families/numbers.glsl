// What elements share that are one number of the device's. Whoever includes this has defined its
// type, NUMBER, and that of a vector of them, NUMBERS.

#define ELEMENTS_IN(at, name) ELEMENTS_VIEW(at, name, readonly) ELEMENTS_LOAD(name)
#define ELEMENTS_OUT(at, name) ELEMENTS_VIEW(at, name, writeonly) ELEMENTS_STORE(name)
#define ELEMENTS_IN_OUT(at, name) ELEMENTS_VIEW(at, name, ) ELEMENTS_LOAD(name) ELEMENTS_STORE(name)

#define NUMBERS_VIEW(at, name, access) \
    layout(set = 0, binding = at, std430) access buffer name##_Numbers { NUMBER name##_numbers[]; };

#ifdef NEIGHBOURS
#define ELEMENT NUMBERS
#else
#define ELEMENT NUMBER
#define ELEMENTS_VIEW NUMBERS_VIEW
#define ELEMENTS_LOAD(name) \
    void load_##name(uint element, out NUMBER x) { x = name##_numbers[element]; }
#define ELEMENTS_STORE(name) \
    void store_##name(uint element, NUMBER x) { name##_numbers[element] = x; }
#endif

void f_zero(out NUMBER z) { z = 0; }
void f_copy(NUMBER x, out NUMBER z) { z = x; }
void f_choose(bool first, NUMBER x, NUMBER y, out NUMBER z) { z = first ? x : y; }
bool f_is_zero(NUMBER x) { return x == 0; }
bool f_equal(NUMBER x, NUMBER y) { return x == y; }
