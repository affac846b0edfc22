// The roots of the butterflies of a pass, in shared memory: get_roots(i, root). Include transform.glsl
// first.

const uint ROOTS = LEVELS == 0 ? 1 : A / 2;
SHARED_LAZY(roots, ROOTS)

// Copies the roots to shared memory. A barrier must follow before they are read.
void load_roots() {
    for (uint i = gl_LocalInvocationID.x; i < ROOTS; i += gl_WorkGroupSize.x) {
        ELEMENT words;
        LAZY root;
        load_root(i, words);
        lazy_from_element(words, root);
        put_roots(i, root);
    }
}
