// The state of a permutation in families whose elements are one integer.

#ifndef GROUPED
ELEMENT state[WIDTH];
ELEMENT mixed[WIDTH];

void get_state(uint i, out NUMBER z) { z = state[i]; }
void put_state(uint i, NUMBER x) { state[i] = x; }
void put_mixed(uint i, NUMBER x) { mixed[i] = x; }
void take_mixed(uint i) { state[i] = mixed[i]; }
#endif

void n_zero(out NUMBER z) { z = ELEMENT(0); }
void n_add(NUMBER x, NUMBER y, out NUMBER z) { f_add(x, y, z); }
void n_add_factor(NUMBER x, NUMBER y, out NUMBER z) { f_add(x, y, z); }

#define SUM ELEMENT
void begin_sum(out SUM t) { t = ELEMENT(0); }
void add_term(NUMBER x, NUMBER y, uint i, inout SUM t) {
    ELEMENT product;
    f_mul(x, y, product);
    f_add(t, product, t);
}
void end_sum(SUM t, out NUMBER z) { z = t; }

#define CONSTANTS_IN(at, name) ELEMENTS_IN(at, name)
