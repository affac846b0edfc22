pragma circom 2.0.0;

// A public output that is zero for all inputs.
template ZeroOutput() {
    signal input a;
    signal input b;
    signal output zero;
    signal left;
    signal right;
    left <== a * b;
    right <== b * a;
    zero <== left - right;
}

component main = ZeroOutput();
