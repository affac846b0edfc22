// The check of elements in kernels with CHECKED. element.glsl includes this file after the family.
//
// CHECK(x, i, argument) reports that x, which is element i of an argument, is not below p. Before
// including element.glsl, a kernel defines ARGUMENTS, the number of its inputs.

// The status word: element * ARGUMENTS + argument of the first element of the chunk that is not
// below the modulus; 0xffffffff if there is none. Its binding follows those of the inputs and the
// output.
layout(set = 0, binding = ARGUMENTS + 1, std430) buffer Status { uint status; };

void report(uint element, uint argument) {
    uint code = element * ARGUMENTS + argument;
    // The plain read avoids most of the atomics when a whole array is out of range.
    if (code < status) atomicMin(status, code);
}

#define CHECK(x, i, argument) if (!f_below_modulus(x)) report(i, argument)
