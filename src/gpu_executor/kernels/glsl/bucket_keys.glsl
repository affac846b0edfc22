// The keys and entries of multi-scalar multiplications. scalar_digits.comp makes them: an entry is a
// point that is added to a bucket, and its key is the number of that bucket.

const uint NO_KEY = 0xFFFFFFFF;   // the key of what belongs to no bucket
const uint EMPTY = 0x80000000;    // a bit of the key of a partial sum: the run goes on, but has no sum here
const uint NEGATIVE = 0x80000000; // a bit of an entry, beside the index of its point: it is subtracted

// The absolute value of the digit at the lowest bits of a number, at most `buckets`; `carry` is that of the
// digit below, then of this one.
uint take_digit(uint bits, uint buckets, inout uint carry, out bool negative) {
    uint digit = (bits & (2 * buckets - 1)) + carry;
    negative = digit > buckets;
    carry = uint(negative);
    return negative ? 2 * buckets - digit : digit;
}
