// What is wrong with an encoded point (ops/point_bytes.py has the same numbers).

const uint GOOD = 0, NOT_BELOW = 1, NO_ROOT = 2, SIGNED_ZERO = 3, OUTSIDE = 4, OFF_CURVE = 5, INFINITE = 6;
