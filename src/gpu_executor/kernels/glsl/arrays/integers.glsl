// Integers: NumPy's results bit for bit. Signed ones are in two's complement, and divided as
// magnitudes.

bool is_negative(NUMBER x) { return (x & SIGN_BIT) != 0; }
bool is_nan(NUMBER x) { return false; }
bool is_true(NUMBER x) { return x != 0; }

// The integers may differ in whether they are signed.
bool is_equal(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    return a == b && (a_signed == b_signed || !is_negative(a));
}

bool is_less(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    bool a_below = a_signed && is_negative(a), b_below = b_signed && is_negative(b);
    return a_below == b_below ? a < b : a_below;
}

bool is_less_or_equal(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    return !is_less(b, a, b_signed, a_signed);
}

NUMBER negate(NUMBER x) { return ~x + NUMBER(1); }

// The quotient or the remainder of a division that rounds down; 0 where b is 0.
NUMBER divide(NUMBER a, NUMBER b) {
    if (b == 0) return NUMBER(0);
    bool a_below = IS_SIGNED && is_negative(a), b_below = IS_SIGNED && is_negative(b);
    NUMBER dividend = a_below ? negate(a) : a, divisor = b_below ? negate(b) : b;
    NUMBER quotient = dividend / divisor, rest = dividend - quotient * divisor;
    bool rounds = a_below != b_below && rest != 0;
    if (OPERATION == OP_REMAINDER) {
        if (rounds) rest = divisor - rest;
        return b_below ? negate(rest) : rest;
    }
    if (rounds) quotient += NUMBER(1);
    return a_below != b_below ? negate(quotient) : quotient;
}

// NumPy takes the amount of a shift for an unsigned number, and shifts all bits out if it is not
// below BITS.
NUMBER shift(NUMBER a, NUMBER amount) {
    bool fits = amount < NUMBER(BITS);
    uint bits = fits ? uint(amount) : 0;
    if (OPERATION == OP_LEFT_SHIFT) return fits ? a << bits : NUMBER(0);
    bool below = IS_SIGNED && is_negative(a);
    NUMBER kept = below ? ~a : a;
    kept = fits ? kept >> bits : NUMBER(0);
    return below ? ~kept : kept;
}

NUMBER compute_number(NUMBER a, NUMBER b) {
    if (OPERATION == OP_ADD) return a + b;
    if (OPERATION == OP_SUBTRACT) return a - b;
    if (OPERATION == OP_MULTIPLY) return a * b;
    if (OPERATION == OP_FLOOR_DIVIDE || OPERATION == OP_REMAINDER) return divide(a, b);
    if (OPERATION == OP_BITWISE_AND) return a & b;
    if (OPERATION == OP_BITWISE_OR) return a | b;
    if (OPERATION == OP_BITWISE_XOR) return a ^ b;
    if (OPERATION == OP_LEFT_SHIFT || OPERATION == OP_RIGHT_SHIFT) return shift(a, b);
    if (OPERATION == OP_NEGATIVE) return negate(a);
    if (OPERATION == OP_ABSOLUTE) return IS_SIGNED && is_negative(a) ? negate(a) : a;
    return ~a;  // OP_INVERT
}

const NUMBER LOWEST = IS_SIGNED ? SIGN_BIT : NUMBER(0);
const NUMBER HIGHEST = IS_SIGNED ? ~SIGN_BIT : ~NUMBER(0);
