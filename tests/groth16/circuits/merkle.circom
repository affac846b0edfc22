pragma circom 2.0.0;

include "circomlib/circuits/poseidon.circom";
include "circomlib/circuits/mux1.circom";

// The root of a Merkle tree of Poseidon hashes, from a leaf and its path.
template MerklePath(depth) {
    signal input leaf;
    signal input siblings[depth];
    signal input sides[depth];
    signal output root;
    component hashes[depth];
    component order[depth];
    for (var i = 0; i < depth; i++) {
        var node = leaf;
        if (i > 0) {
            node = hashes[i - 1].out;
        }
        sides[i] * (1 - sides[i]) === 0;
        order[i] = MultiMux1(2);
        order[i].c[0][0] <== node;
        order[i].c[0][1] <== siblings[i];
        order[i].c[1][0] <== siblings[i];
        order[i].c[1][1] <== node;
        order[i].s <== sides[i];
        hashes[i] = Poseidon(2);
        hashes[i].inputs[0] <== order[i].out[0];
        hashes[i].inputs[1] <== order[i].out[1];
    }
    root <== hashes[depth - 1].out;
}

component main = MerklePath(2);
