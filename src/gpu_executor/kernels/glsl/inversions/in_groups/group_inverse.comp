// y[i] = 1 / x[i], and 0 for 0, by Montgomery's trick. An invocation multiplies its elements, keeping the
// products before each of them in registers; some invocations of a work-group multiply the products of
// SHARED invocations each, and invert what they get. On the way back, the inverse of a product times what
// is before its last factor is the inverse of that factor, and times the factor the inverse of the rest.
// So elements are read once and written once, and no array has products.
//
// Three products for each element, three more for each invocation, and one power p - 2 for SHARED of them.
// A 0 is multiplied as 1. On an NVIDIA H200, 2^22 inverses take 13.7 us in BabyBear, 11.8 us in Mersenne-31
// and 43.2 us in Goldilocks: 14.1, 12.2 and 45.6 us with 256 invocations in a work-group; 14.7, 12.0 and 44.5
// us with 2 for SHARED; 15.2, 12.1 and 47.6 us with 2 vectors; 14.3, 12.4 and 40.5 us with 8, whose code is
// longer and inverts few elements more slowly.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define ONLY_PRODUCTS
#define KERNEL_PUSH uint vectors;
#include "../../element.glsl"
#include "../../limb_form.glsl"

const uint VECTORS = 4; // of an invocation, as in scans.py
const uint SHARED = 4, INVERTERS = gl_WorkGroupSize.x / SHARED;
const uint TILE = gl_WorkGroupSize.x * VECTORS;

// The first `vectors` items are whole vectors, followed by single elements: none or a few, or all of
// arrays that do not begin at a multiple of 16 bytes.
ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, y)

shared RESIDUE totals[gl_WorkGroupSize.x];

void select_item(uint item, out uint at) {
    single = item >= vectors;
    at = single ? item - vectors + vectors * PACKED : item;
}

void load_item(uint item, uint items, out VECTOR v) {
    uint at;
    select_item(item, at);
    v = VECTOR(1);
    if (item < items) load_x(at, v);
}

void store_inverse(uint item, uint items, VECTOR x, NUMBER inverse) {
    VECTOR y;
    uint at;
    n_to_element(inverse, y);
    EACH_COMPONENT(k) y[k] = x[k] == 0 ? SCALAR(0) : y[k];
    select_item(item, at);
    if (item < items) store_y(at, y);
}

void n_from_nonzero(VECTOR x, out NUMBER z) { n_from_element(max(x, VECTOR(1)), z); }

// Inverts the totals of SHARED invocations: local, local + INVERTERS and so on.
void invert_totals(uint local) {
    RESIDUE factors[SHARED], before[SHARED], running = totals[local];
    [[unroll]] for (uint k = 1; k < SHARED; ++k) {
        factors[k] = totals[k * INVERTERS + local];
        before[k] = running;
        n_mul(running, factors[k], running);
    }
    n_invert(running, running);
    [[unroll]] for (uint back = 1; back < SHARED; ++back) {
        uint k = SHARED - back;
        RESIDUE inverse;
        n_mul(running, before[k], inverse);
        n_mul(running, factors[k], running);
        totals[k * INVERTERS + local] = inverse;
    }
    totals[local] = running;
}

void main() {
    uint local = gl_LocalInvocationID.x, items = vectors + (count - vectors * PACKED);
    for (uint tile = gl_WorkGroupID.x * TILE; tile < items; tile += gl_NumWorkGroups.x * TILE) {
        uint first = tile + local;
        VECTOR x[VECTORS];
        NUMBER before[VECTORS], running, factor;
        [[unroll]] for (uint j = 0; j < VECTORS; ++j) {
            load_item(first + j * gl_WorkGroupSize.x, items, x[j]);
        }
        n_from_nonzero(x[0], running);
        [[unroll]] for (uint j = 1; j < VECTORS; ++j) {
            before[j] = running;
            n_from_element(max(x[j], VECTOR(1)), factor);
            n_mul(running, factor, running);
        }

        RESIDUE total = running[0], before_lane[PACKED];
        [[unroll]] for (uint k = 1; k < PACKED; ++k) {
            before_lane[k] = total;
            n_mul(total, running[k], total);
        }
        totals[local] = total;
        barrier();
        if (local < INVERTERS) invert_totals(local);
        barrier();
        total = totals[local];
        [[unroll]] for (uint back = 1; back < PACKED; ++back) {
            uint k = PACKED - back;
            RESIDUE inverse;
            n_mul(total, before_lane[k], inverse);
            n_mul(total, running[k], total);
            running[k] = inverse;
        }
        running[0] = total;

        [[unroll]] for (uint j = VECTORS - 1; j > 0; --j) {
            NUMBER inverse;
            n_mul(running, before[j], inverse);
            n_from_nonzero(x[j], factor);
            n_mul(running, factor, running);
            store_inverse(first + j * gl_WorkGroupSize.x, items, x[j], inverse);
        }
        store_inverse(first, items, x[0], running);
    }
}
