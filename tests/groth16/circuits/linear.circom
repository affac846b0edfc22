pragma circom 2.0.0;

// Linear constraints only: their rows of A and B are empty.
template Linear() {
    signal input a;
    signal input b;
    signal output sum;
    signal output difference;
    sum <== a + b + 3;
    difference <== 2 * a - b;
}

component main {public [a]} = Linear();
