"""The extension fields of BN254's pairing, in Python integers.

F2 = Fq[u] with u^2 = -1, F6 = F2[v] with v^3 = 9 + u, F12 = F6[w] with w^2 = v. An element of F2 is
a pair of integers, one of F6 six integers (the pairs of v^0, v^1, v^2), one of F12 two elements of
F6 (of w^0 and w^1). So the coefficient of w^(2j+i) is the pair j of half i.

A reduction modulo q costs more than a product. Products of F6 are therefore sums of unreduced
products, and an element of F12 is reduced once, at the end of an operation: a product takes 54
products of integers (Karatsuba at every level) and 12 reductions.
"""

from __future__ import annotations

from gpu_executor.primes.moduli import BN254_Q as Q

F2 = tuple[int, int]
F6 = tuple[int, int, int, int, int, int]
F12 = tuple[F6, F6]

XI: F2 = (9, 1)
"""The cube of v. The products with it are written out below: (9 + u)(a + b u)."""
ONE: F12 = ((1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0))


# --- F2 ---


def multiply_f2(x: F2, y: F2) -> F2:
    """x y."""
    a, b = x
    c, d = y
    low, high = a * c, b * d
    return (low - high) % Q, ((a + b) * (c + d) - low - high) % Q


def square_f2(x: F2) -> F2:
    """x^2."""
    a, b = x
    return (a + b) * (a - b) % Q, 2 * a * b % Q


def invert_f2(x: F2) -> F2:
    """1 / x."""
    a, b = x
    inverse = pow(a * a + b * b, -1, Q)
    return a * inverse % Q, -b * inverse % Q


def power_f2(x: F2, exponent: int) -> F2:
    """x^exponent."""
    result = (1, 0)
    for bit in f"{exponent:b}":
        result = square_f2(result)
        if bit == "1":
            result = multiply_f2(result, x)
    return result


# --- F6, unreduced ---


def _multiply(x: F6, y: F6) -> F6:
    """x y: 6 products of F2, 18 of integers."""
    a0, a1, b0, b1, c0, c1 = x
    d0, d1, e0, e1, f0, f1 = y
    low, high = a0 * d0, a1 * d1
    ad0, ad1 = low - high, (a0 + a1) * (d0 + d1) - low - high
    low, high = b0 * e0, b1 * e1
    be0, be1 = low - high, (b0 + b1) * (e0 + e1) - low - high
    low, high = c0 * f0, c1 * f1
    cf0, cf1 = low - high, (c0 + c1) * (f0 + f1) - low - high
    # The sums of mixed products: (a + b)(d + e) - a d - b e is a e + b d.
    s0, s1, t0, t1 = a0 + b0, a1 + b1, d0 + e0, d1 + e1
    low, high = s0 * t0, s1 * t1
    ae0, ae1 = low - high - ad0 - be0, (s0 + s1) * (t0 + t1) - low - high - ad1 - be1
    s0, s1, t0, t1 = a0 + c0, a1 + c1, d0 + f0, d1 + f1
    low, high = s0 * t0, s1 * t1
    af0, af1 = low - high - ad0 - cf0, (s0 + s1) * (t0 + t1) - low - high - ad1 - cf1
    s0, s1, t0, t1 = b0 + c0, b1 + c1, e0 + f0, e1 + f1
    low, high = s0 * t0, s1 * t1
    bf0, bf1 = low - high - be0 - cf0, (s0 + s1) * (t0 + t1) - low - high - be1 - cf1
    return (
        ad0 + 9 * bf0 - bf1,
        ad1 + 9 * bf1 + bf0,
        ae0 + 9 * cf0 - cf1,
        ae1 + 9 * cf1 + cf0,
        af0 + be0,
        af1 + be1,
    )


def _multiply_sparse(x: F6, d0: int, d1: int, e0: int, e1: int) -> F6:
    """x (d + e v): 5 products of F2, 15 of integers."""
    a0, a1, b0, b1, c0, c1 = x
    d, e = d0 + d1, e0 + e1
    low, high = a0 * d0, a1 * d1
    ad0, ad1 = low - high, (a0 + a1) * d - low - high
    low, high = b0 * e0, b1 * e1
    be0, be1 = low - high, (b0 + b1) * e - low - high
    s0, s1, t0, t1 = a0 + b0, a1 + b1, d0 + e0, d1 + e1
    low, high = s0 * t0, s1 * t1
    ae0, ae1 = low - high - ad0 - be0, (s0 + s1) * (d + e) - low - high - ad1 - be1
    c = c0 + c1
    low, high = c0 * d0, c1 * d1
    cd0, cd1 = low - high, c * d - low - high
    low, high = c0 * e0, c1 * e1
    ce0, ce1 = low - high, c * e - low - high
    return ad0 + 9 * ce0 - ce1, ad1 + 9 * ce1 + ce0, ae0, ae1, be0 + cd0, be1 + cd1


def _multiply_by_v(x: F6) -> F6:
    """x v."""
    a0, a1, b0, b1, c0, c1 = x
    return 9 * c0 - c1, 9 * c1 + c0, a0, a1, b0, b1


def _add(x: F6, y: F6) -> F6:
    a0, a1, b0, b1, c0, c1 = x
    d0, d1, e0, e1, f0, f1 = y
    return a0 + d0, a1 + d1, b0 + e0, b1 + e1, c0 + f0, c1 + f1


def _reduce(x: F6) -> F6:
    a0, a1, b0, b1, c0, c1 = x
    return a0 % Q, a1 % Q, b0 % Q, b1 % Q, c0 % Q, c1 % Q


def _invert_f6(x: F6) -> F6:
    """1 / x. With x = a + b v + c v^2 and s = 9 + u, the norm of x is a A + s (c B + b C), where
    A = a^2 - s b c, B = s c^2 - a b, C = b^2 - a c; and 1 / x is (A + B v + C v^2) / norm."""
    a, b, c = x[0:2], x[2:4], x[4:6]
    bc, ab, ac = multiply_f2(b, c), multiply_f2(a, b), multiply_f2(a, c)
    aa, bb, cc = square_f2(a), square_f2(b), square_f2(c)
    big_a = aa[0] - 9 * bc[0] + bc[1], aa[1] - 9 * bc[1] - bc[0]
    big_b = 9 * cc[0] - cc[1] - ab[0], 9 * cc[1] + cc[0] - ab[1]
    big_c = bb[0] - ac[0], bb[1] - ac[1]
    first, second = multiply_f2(c, big_b), multiply_f2(b, big_c)
    mixed0, mixed1 = multiply_f2(XI, (first[0] + second[0], first[1] + second[1]))
    whole0, whole1 = multiply_f2(a, big_a)
    inverse = invert_f2((whole0 + mixed0, whole1 + mixed1))
    (a0, a1), (b0, b1), (c0, c1) = (multiply_f2(each, inverse) for each in (big_a, big_b, big_c))
    return a0, a1, b0, b1, c0, c1


# --- F12 ---


def multiply(x: F12, y: F12) -> F12:
    """x y: 3 products of F6, 54 of integers."""
    low, high = _multiply(x[0], y[0]), _multiply(x[1], y[1])
    a0, a1, b0, b1, c0, c1 = _multiply(_add(x[0], x[1]), _add(y[0], y[1]))
    d0, d1, e0, e1, f0, f1 = _add(low, high)
    return (
        _reduce(_add(low, _multiply_by_v(high))),
        _reduce((a0 - d0, a1 - d1, b0 - e0, b1 - e1, c0 - f0, c1 - f1)),
    )


def square(x: F12) -> F12:
    """x^2: 2 products of F6, 36 of integers, by (a + b)(a + b v) - a b - a b v = a^2 + b^2 v."""
    a, b = x
    product = _multiply(a, b)
    p0, p1, q0, q1, r0, r1 = product
    s0, s1, t0, t1, u0, u1 = _multiply(_add(a, b), _add(a, _multiply_by_v(b)))
    d0, d1, e0, e1, f0, f1 = _add(product, _multiply_by_v(product))
    return (
        _reduce((s0 - d0, s1 - d1, t0 - e0, t1 - e1, u0 - f0, u1 - f1)),
        _reduce((2 * p0, 2 * p1, 2 * q0, 2 * q1, 2 * r0, 2 * r1)),
    )


def multiply_by_line(x: F12, d0: int, d1: int, e0: int, e1: int) -> F12:
    """x (1 + d w + e w^3): 30 products of integers."""
    a, b = x
    from_b = _multiply_by_v(_multiply_sparse(b, d0, d1, e0, e1))
    from_a = _multiply_sparse(a, d0, d1, e0, e1)
    return _reduce(_add(a, from_b)), _reduce(_add(b, from_a))


def conjugate(x: F12) -> F12:
    """x^(q^6), which is 1 / x after the easy part of the final exponentiation."""
    a0, a1, b0, b1, c0, c1 = x[1]
    return x[0], (-a0 % Q, -a1 % Q, -b0 % Q, -b1 % Q, -c0 % Q, -c1 % Q)


def invert(x: F12) -> F12:
    """1 / x, which is (a - b w) / (a^2 - b^2 v)."""
    a, b = x
    a0, a1, b0, b1, c0, c1 = _multiply(a, a)
    d0, d1, e0, e1, f0, f1 = _multiply_by_v(_multiply(b, b))
    norm = _reduce((a0 - d0, a1 - d1, b0 - e0, b1 - e1, c0 - f0, c1 - f1))
    inverse = _invert_f6(norm)
    return conjugate((_reduce(_multiply(a, inverse)), _reduce(_multiply(b, inverse))))


def square_cyclotomic(x: F12) -> F12:
    """x^2 of an x with x^(q^4 - q^2 + 1) = 1, by three squares of F4 (Granger and Scott, 2010): 18
    products of integers."""
    (a0, a1, b0, b1, c0, c1), (d0, d1, e0, e1, f0, f1) = x
    r0, r1, s0, s1 = _square_f4(a0, a1, e0, e1)
    t0, t1, u0, u1 = _square_f4(d0, d1, c0, c1)
    y0, y1, z0, z1 = _square_f4(b0, b1, f0, f1)
    return (
        (
            (3 * r0 - 2 * a0) % Q,
            (3 * r1 - 2 * a1) % Q,
            (3 * t0 - 2 * b0) % Q,
            (3 * t1 - 2 * b1) % Q,
            (3 * y0 - 2 * c0) % Q,
            (3 * y1 - 2 * c1) % Q,
        ),
        (
            (3 * (9 * z0 - z1) + 2 * d0) % Q,
            (3 * (9 * z1 + z0) + 2 * d1) % Q,
            (3 * s0 + 2 * e0) % Q,
            (3 * s1 + 2 * e1) % Q,
            (3 * u0 + 2 * f0) % Q,
            (3 * u1 + 2 * f1) % Q,
        ),
    )


def _square_f4(a0: int, a1: int, b0: int, b1: int) -> tuple[int, int, int, int]:
    """(a + b y)^2 with y^2 = 9 + u, unreduced: 6 products."""
    aa0, aa1 = (a0 + a1) * (a0 - a1), 2 * a0 * a1
    bb0, bb1 = (b0 + b1) * (b0 - b1), 2 * b0 * b1
    s0, s1 = a0 + b0, a1 + b1
    return (
        aa0 + 9 * bb0 - bb1,
        aa1 + 9 * bb1 + bb0,
        (s0 + s1) * (s0 - s1) - aa0 - bb0,
        2 * s0 * s1 - aa1 - bb1,
    )


# --- the Frobenius map ---

FROBENIUS = {
    power: [power_f2(XI, k * ((Q**power - 1) // 6)) for k in range(6)] for power in (1, 2, 3)
}
"""FROBENIUS[n][k] is w^(k (q^n - 1)): what x^(q^n) multiplies the coefficient of w^k by."""


def map_frobenius(x: F12, power: int) -> F12:
    """x^(q^power), for a power of 1 to 3."""
    halves = []
    for half, coefficients in enumerate(x):
        found: list[int] = []
        for pair in range(3):
            c0, c1 = coefficients[2 * pair : 2 * pair + 2]
            factor = FROBENIUS[power][2 * pair + half]
            found += multiply_f2((c0, -c1 if power % 2 else c1), factor)
        a0, a1, b0, b1, c0, c1 = found
        halves.append((a0, a1, b0, b1, c0, c1))
    return halves[0], halves[1]
