// Arrays of 24 specialization constants with consecutive ids: SPEC_WORDS(first, NAME) declares them, and
// SPEC_WORD_ARRAY(NAME) is the array.

#ifndef SPEC_WORDS
#define SPEC_WORD(first, name, n) layout(constant_id = first + n) const uint name##n = 0;
#define SPEC_WORDS(first, name)                                                               \
    SPEC_WORD(first, name, 0) SPEC_WORD(first, name, 1) SPEC_WORD(first, name, 2)             \
    SPEC_WORD(first, name, 3) SPEC_WORD(first, name, 4) SPEC_WORD(first, name, 5)             \
    SPEC_WORD(first, name, 6) SPEC_WORD(first, name, 7) SPEC_WORD(first, name, 8)             \
    SPEC_WORD(first, name, 9) SPEC_WORD(first, name, 10) SPEC_WORD(first, name, 11)           \
    SPEC_WORD(first, name, 12) SPEC_WORD(first, name, 13) SPEC_WORD(first, name, 14)          \
    SPEC_WORD(first, name, 15) SPEC_WORD(first, name, 16) SPEC_WORD(first, name, 17)          \
    SPEC_WORD(first, name, 18) SPEC_WORD(first, name, 19) SPEC_WORD(first, name, 20)          \
    SPEC_WORD(first, name, 21) SPEC_WORD(first, name, 22) SPEC_WORD(first, name, 23)

#define SPEC_WORD_ARRAY(name)                                                                 \
    uint[24](name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7,          \
    name##8, name##9, name##10, name##11, name##12, name##13, name##14, name##15, name##16,   \
    name##17, name##18, name##19, name##20, name##21, name##22, name##23)
#endif
