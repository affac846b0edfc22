// In families of one word, a number in limb form is an element.

#define NUMBER ELEMENT

void n_from_element(ELEMENT x, out NUMBER z) { z = x; }
void n_to_element(NUMBER x, out ELEMENT z) { z = x; }
void n_copy(NUMBER x, out NUMBER z) { z = x; }
void n_select(bool condition, NUMBER x, NUMBER y, out NUMBER z) { z = condition ? x : y; }
void n_mul(NUMBER x, NUMBER y, out NUMBER z) { f_mul(x, y, z); }
void n_square(NUMBER x, out NUMBER z) { f_square(x, z); }
