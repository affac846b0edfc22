pragma circom 2.0.0;

// The input `unused` and the constant are in no constraint.
template Unused() {
    signal input a;
    signal input unused;
    signal output c;
    c <== a * a;
}

component main {public [unused]} = Unused();
