// Lazily reduced elements in families whose elements are one integer: fully reduced elements,
// because lazy reduction gains nothing there.

#define LAZY ELEMENT

void lazy_begin() {}
void lazy_from_element(ELEMENT x, out LAZY z) { z = x; }
void lazy_to_element(LAZY x, out ELEMENT z) { z = x; }
void lazy_copy(LAZY x, out LAZY z) { z = x; }
void lazy_add(LAZY x, LAZY y, out LAZY z) { f_add(x, y, z); }
void lazy_sub(LAZY x, LAZY y, out LAZY z) { f_sub(x, y, z); }
void lazy_mul(LAZY x, LAZY y, out LAZY z) { f_mul(x, y, z); }

void lazy_sub_mul(LAZY x, LAZY y, LAZY w, out LAZY z) {
    ELEMENT difference;
    f_sub(x, y, difference);
    f_mul(difference, w, z);
}

#define SHARED_LAZY(name, size)                                       \
    shared ELEMENT name##_elements[size];                             \
    void put_##name(uint at, LAZY x) { name##_elements[at] = x; }     \
    void get_##name(uint at, out LAZY x) { x = name##_elements[at]; }
