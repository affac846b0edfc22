"""Random kernels: small GLSL compute shaders with a NumPy model that is independent of the package.

    kinds.py        scalar types
    description.py  what a kernel is, as plain data
    expressions.py  expressions, in GLSL and in NumPy
    draw.py         draws kernels and calls
    glsl.py         a kernel as GLSL and SPIR-V; wgsl.py: as WGSL
    model.py        what a kernel computes, in NumPy
    calls.py        the arrays, parameters and expected results of a call
    runs.py         runs calls on a backend in every way and compares
    corpus.py       the saved kernels

Values are integers, or floating-point numbers that hold small integers, so every result is exact.
"""
