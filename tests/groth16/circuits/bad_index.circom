pragma circom 2.0.0;

// The calculator refuses an index beyond the table.
template Lookup() {
    signal input index;
    signal output c;
    var table[4] = [3, 1, 4, 1];
    c <-- table[index];
    signal square;
    square <== c * index;
}

component main = Lookup();
