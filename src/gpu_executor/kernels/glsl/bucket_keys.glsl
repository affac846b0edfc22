// The keys and entries of multi-scalar multiplications. scalar_digits.comp makes them: an entry is a
// point that is added to a bucket, and its key is the number of that bucket.

const uint NO_KEY = 0xFFFFFFFF;   // the key of what belongs to no bucket
const uint EMPTY = 0x80000000;    // a bit of the key of a partial sum: the run goes on, but has no sum here
const uint NEGATIVE = 0x80000000; // a bit of an entry, beside the index of its point: it is subtracted
