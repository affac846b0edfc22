"""Algorithms on arrays: NumPy arrays or device arrays in, arrays in the same place out.

`sort`, `argsort` and `bincount` take arrays of numbers. The other modules compute with arrays of
field elements, as a `Prime` and words; `fields` puts `Field` and `FieldArray` on top of them.

On a device an algorithm is one submission of one or more dispatches, and nothing waits for it. On
the host it is exact NumPy code.
"""

from gpu_executor.ops.sort import argsort, bincount, sort

__all__ = ["argsort", "bincount", "sort"]
