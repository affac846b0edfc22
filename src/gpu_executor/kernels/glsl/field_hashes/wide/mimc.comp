// MiMC: rounds that add a constant and a key and raise to a power.
//
// Without FEISTEL the state is a key k and a message x, and becomes k + x + E_k(x) and E_k(x), where E
// is the cipher. With FEISTEL the state is the two halves of a Feistel network, whose key is part of
// the constants; its last round does not swap the halves. `constant` has a number for each round.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../sponge_push.glsl"
#include "../../element.glsl"
#include "../state.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 91;
layout(constant_id = ID_FEISTEL) const bool FEISTEL = false;

CONSTANTS_IN(2, constant)

void permute() {
    NUMBER left, right, x, added;
    get_state(0, left);
    get_state(1, right);
    if (FEISTEL) n_copy(left, x);
    else n_copy(right, x);
    [[dont_unroll]] for (uint r = 0; r < ROUNDS; ++r) {
        load_constant(r, added);
        if (!FEISTEL) n_add(x, left, x);
        n_add_factor(x, added, x);
        n_power(x, x);
        if (FEISTEL) {
            n_add(right, x, x); // the next left half
            n_copy(left, right);
            n_copy(x, left);
        }
    }
    if (FEISTEL) { // the halves are swapped back
        put_state(0, right);
        put_state(1, left);
    } else {
        n_add(x, left, x);
        n_add(left, right, left);
        n_add(left, x, left);
        put_state(0, left);
        put_state(1, x);
    }
}

#include "../sponge.glsl"
