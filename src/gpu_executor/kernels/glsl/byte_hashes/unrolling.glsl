// EACH_OF(n, X): the statement X for the constants 0, 1, ... n - 1.

#define EACH_OF(n, X) EACH_OF_N(n, X)
#define EACH_OF_N(n, X) EACH_OF_##n(X)
#define FOUR_FROM(X, i) X(i) X(i + 1) X(i + 2) X(i + 3)
#define EACH_OF_2(X) X(0) X(1)
#define EACH_OF_4(X) FOUR_FROM(X, 0)
#define EACH_OF_5(X) EACH_OF_4(X) X(4)
#define EACH_OF_8(X) EACH_OF_4(X) FOUR_FROM(X, 4)
#define EACH_OF_16(X) EACH_OF_8(X) FOUR_FROM(X, 8) FOUR_FROM(X, 12)
#define EACH_OF_32(X)                                                                          \
    EACH_OF_16(X) FOUR_FROM(X, 16) FOUR_FROM(X, 20) FOUR_FROM(X, 24) FOUR_FROM(X, 28)
#define EACH_OF_34(X) EACH_OF_32(X) X(32) X(33)
