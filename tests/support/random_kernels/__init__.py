"""Random kernels: small GLSL compute shaders with a NumPy model that is independent of the package.

    kinds.py        scalar types
    description.py  what a kernel and a call are, as plain data
    sizes.py        the sizes of a call; work_groups.py: the size of work-groups
    kernel/parameters.py   push constants and uniform buffer, and what calls give for them
    memory.py       where arrays lie, and `out=`
    expressions.py  expressions, in GLSL and in NumPy
    draw.py         draws parts of kernels; families.py: whole ones; declarations.py: the rest
    draw_calls.py   draws calls
    kernel/glsl.py         a kernel as GLSL and SPIR-V; kernel/wgsl.py: as WGSL
    model.py        what a kernel computes, in NumPy
    outcomes.py     which kernels and calls must be refused
    calls.py        the arrays and expected results of a call
    runs.py         runs calls on a backend in every way and compares; graphs.py: in graphs
    kernel/wgsl_parameters.py  kernels of WGSL alone, whose parameters have odd uses
    corpus.py       saved kernels; hunt.py: many calls by hand

A kernel follows from its seed, and call k of it from the kernel's name. An outcome is a right
result or, where `outcomes.py` predicts it, an error in words.

Values are integers, or floating-point numbers that hold small integers, so every result is exact.
"""
