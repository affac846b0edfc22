"""Algorithms on arrays of field elements: a `Prime` and words in, words out.

The words are NumPy arrays or device arrays; the result is in the place of the operands. On a
device an algorithm is one submission of one or more dispatches, and nothing waits for it. On the
host it is exact NumPy code. `fields` puts `Field` and `FieldArray` on top.
"""
