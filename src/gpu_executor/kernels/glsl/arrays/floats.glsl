// Floats as bits. A device adds, subtracts, multiplies and divides them; everything else is done on
// the bits, and remainders are exact.

#ifdef LONG
#define FLOAT double
#define MANTISSA_BITS 52
#define MAX_EXPONENT 2047
FLOAT to_float(NUMBER x) { return packDouble2x32(split_words(x)); }
NUMBER to_bits(FLOAT x) { return join_words(unpackDouble2x32(x)); }
int find_top_bit(NUMBER x) {
    uvec2 words = split_words(x);
    return words.y != 0 ? 32 + findMSB(words.y) : findMSB(words.x);
}
#else
#define FLOAT float
#define MANTISSA_BITS 23
#define MAX_EXPONENT 255
FLOAT to_float(NUMBER x) { return uintBitsToFloat(x); }
NUMBER to_bits(FLOAT x) { return floatBitsToUint(x); }
int find_top_bit(NUMBER x) { return findMSB(x); }
#endif
const NUMBER IMPLICIT_BIT = NUMBER(1) << MANTISSA_BITS;
const NUMBER INFINITE = NUMBER(MAX_EXPONENT) << MANTISSA_BITS;
const NUMBER NOT_A_NUMBER = INFINITE | IMPLICIT_BIT >> 1;
const NUMBER ONE = NUMBER(MAX_EXPONENT >> 1) << MANTISSA_BITS;
const NUMBER HALF = NUMBER((MAX_EXPONENT >> 1) - 1) << MANTISSA_BITS;

NUMBER get_magnitude(NUMBER x) { return x & ~SIGN_BIT; }
bool is_negative(NUMBER x) { return (x & SIGN_BIT) != 0; }
bool is_nan(NUMBER x) { return get_magnitude(x) > INFINITE; }
bool is_true(NUMBER x) { return get_magnitude(x) != 0; }

// Unsigned integers in the order of the floats; both zeros are SIGN_BIT.
NUMBER order(NUMBER x) { return is_negative(x) ? SIGN_BIT - get_magnitude(x) : SIGN_BIT + x; }

bool is_equal(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    return !is_nan(a) && !is_nan(b) && order(a) == order(b);
}

bool is_less(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    return !is_nan(a) && !is_nan(b) && order(a) < order(b);
}

bool is_less_or_equal(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    return !is_nan(a) && !is_nan(b) && order(a) <= order(b);
}

NUMBER add(NUMBER a, NUMBER b) { return to_bits(to_float(a) + to_float(b)); }
NUMBER subtract(NUMBER a, NUMBER b) { return to_bits(to_float(a) - to_float(b)); }

NUMBER quotient(NUMBER a, NUMBER b) {
    if (is_true(b)) return to_bits(to_float(a) / to_float(b));
    return is_nan(a) || !is_true(a) ? NOT_A_NUMBER : (a ^ b) & SIGN_BIT | INFINITE;
}

// a - n b for the n that leaves the sign of a and a magnitude below that of b; exact. Mantissas are
// integers here, and a's is shifted by as many bits at once as a number has room for.
NUMBER find_rest(NUMBER a, NUMBER b) {
    NUMBER sign = a & SIGN_BIT, x = get_magnitude(a), y = get_magnitude(b);
    if (x >= INFINITE || y > INFINITE || y == 0) return NOT_A_NUMBER;
    if (x < y) return a;
    NUMBER x_exponent = x >> MANTISSA_BITS, y_exponent = y >> MANTISSA_BITS;
    NUMBER rest = x & (IMPLICIT_BIT - NUMBER(1)), divisor = y & (IMPLICIT_BIT - NUMBER(1));
    if (x_exponent != 0) rest |= IMPLICIT_BIT;
    if (y_exponent != 0) divisor |= IMPLICIT_BIT;
    uint exponent = max(uint(y_exponent), 1u), left = max(uint(x_exponent), 1u) - exponent;
    rest %= divisor;
    while (left > 0) {
        uint bits = min(left, uint(NUMBER_BITS - MANTISSA_BITS - 1));
        rest = (rest << bits) % divisor;
        left -= bits;
    }
    if (rest == 0) return sign;
    uint missing = uint(MANTISSA_BITS - find_top_bit(rest));
    uint room = min(missing, exponent - 1);
    return sign | (NUMBER(exponent - room - 1) << MANTISSA_BITS) + (rest << room);
}

// The quotient rounded down, or the remainder with the sign of b, by NumPy's steps.
NUMBER divide(NUMBER a, NUMBER b) {
    NUMBER rest = find_rest(a, b);
    if (is_nan(a) || is_nan(b)) return NOT_A_NUMBER;
    if (!is_true(b)) return OPERATION == OP_REMAINDER ? NOT_A_NUMBER : quotient(a, b);
    NUMBER whole = quotient(subtract(a, rest), b);
    if (is_nan(rest)) return OPERATION == OP_REMAINDER ? rest : whole;
    if (!is_true(rest)) {
        rest = b & SIGN_BIT;
    } else if (is_negative(rest) != is_negative(b)) {
        rest = add(rest, b);
        whole = subtract(whole, ONE);
    }
    if (OPERATION == OP_REMAINDER) return rest;
    if (!is_true(whole)) return (a ^ b) & SIGN_BIT;
    NUMBER below = to_bits(floor(to_float(whole)));
    return is_less(HALF, subtract(whole, below), true, true) ? add(below, ONE) : below;
}

NUMBER compute_number(NUMBER a, NUMBER b) {
    if (OPERATION == OP_ADD) return add(a, b);
    if (OPERATION == OP_SUBTRACT) return subtract(a, b);
    if (OPERATION == OP_MULTIPLY) return to_bits(to_float(a) * to_float(b));
    if (OPERATION == OP_DIVIDE) return quotient(a, b);
    if (OPERATION == OP_FLOOR_DIVIDE || OPERATION == OP_REMAINDER) return divide(a, b);
    if (OPERATION == OP_NEGATIVE) return a ^ SIGN_BIT;
    return get_magnitude(a);  // OP_ABSOLUTE
}

const NUMBER LOWEST = SIGN_BIT | INFINITE;
const NUMBER HIGHEST = INFINITE;
