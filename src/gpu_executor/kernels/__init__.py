"""The kernels that come with the package, by name.

    vector_add_u32, vector_add_f32
    <field>_add, <field>_sub, <field>_mul     for each field of `gpu_executor.primes`

`load("bls12_381_fq_mul")` gives one; `names()` lists them. Running them needs no compiler: their
SPIR-V is in `spirv/`, built from `glsl/` by `make kernels`.

`elements.element_kernel(prime, "mul")` is for arrays on the card whose elements are known to be
below the modulus: more operations, any prime, no checks.
"""

from gpu_executor.kernels.catalogue import load, names

__all__ = ["load", "names"]
