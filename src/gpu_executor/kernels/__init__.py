"""The kernels that come with the package.

`load(name)` returns one and `names()` lists them: vector sums (`vector_add_u32`), matrix products
(`matmul_f32`), reductions (`reduce_sum_f32`) and, for each field of `gpu_executor.primes`,
`<field>_add`, `<field>_sub` and `<field>_mont_mul`, the Montgomery product. Running them needs no
compiler: their SPIR-V is in `spirv/`, built from `glsl/` by `make kernels`.

    catalogue.py           the kernels by name, which check their elements
    matmul.py              matrix products
    reduction.py           sums, minima and maxima
    elements.py            unchecked field operations on device-resident arrays
    element_references.py  the same operations in NumPy
    passes.py              one pass of a scan or of a number-theoretic transform
    indexing.py            gather and scatter by positions
    sorting.py             radix sort, exclusive scan, counts of equal integers
    families.py            families of primes: which SPIR-V serves a prime, with which constants
    modules.py             the SPIR-V files, the ids of their constants, their push constants
    wgsl_texts.py          the WGSL of the catalogue's kernels, from the templates in `wgsl/`
    build.py               compiles `glsl/`
"""

from gpu_executor.kernels.catalogue import load, names

__all__ = ["load", "names"]
