pragma circom 2.0.0;

// A circuit without inputs.
template NoInputs() {
    signal output c;
    signal t;
    t <-- 6;
    t * t === 36;
    c <== t * 7;
}

component main = NoInputs();
