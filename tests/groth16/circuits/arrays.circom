pragma circom 2.0.0;

// Arrays of one and two dimensions, outputs that are arrays, and assertions.
template Weigh(n, m) {
    signal input weights[m];
    signal input values[n][m];
    signal output sums[n];
    signal products[n][m];
    for (var i = 0; i < n; i++) {
        var sum = 0;
        for (var j = 0; j < m; j++) {
            products[i][j] <== values[i][j] * weights[j];
            sum += products[i][j];
        }
        sums[i] <== sum;
    }
    log("the secret is", weights[0]);
    assert(weights[0] != 13);
    weights[1] * weights[1] === weights[2];
}

component main {public [weights]} = Weigh(2, 3);
