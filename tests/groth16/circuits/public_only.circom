pragma circom 2.0.0;

// All inputs are public: the witness has no private inputs.
template PublicOnly() {
    signal input a;
    signal input b;
    signal output sum;
    signal t;
    t <== a * b;
    sum <== t * t + a;
}

component main {public [a, b]} = PublicOnly();
