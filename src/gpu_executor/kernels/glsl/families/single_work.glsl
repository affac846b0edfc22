// Numbers in work where an element is one number: as they are.

#define WORK ELEMENT

void w_begin() {}
void w_from(ELEMENT x, out WORK z) { z = x; }
void w_to(WORK x, out ELEMENT z) { z = x; }
void w_copy(WORK x, out WORK z) { z = x; }
void w_add(WORK x, WORK y, out WORK z) { f_add(x, y, z); }
void w_sub(WORK x, WORK y, out WORK z) { f_sub(x, y, z); }
void w_mul(WORK x, WORK y, out WORK z) { f_mul(x, y, z); }

void w_sub_mul(WORK x, WORK y, WORK w, out WORK z) {
    ELEMENT difference;
    f_sub(x, y, difference);
    f_mul(difference, w, z);
}

#define SHARED_WORK(name, size)                                       \
    shared ELEMENT name##_elements[size];                             \
    void put_##name(uint at, WORK x) { name##_elements[at] = x; }     \
    void get_##name(uint at, out WORK x) { x = name##_elements[at]; }
