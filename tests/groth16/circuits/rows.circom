pragma circom 2.0.0;

// Rows of one term beside a row of hundreds of terms.
template Rows(n) {
    signal input x[n];
    signal input y;
    signal output c;
    signal s[n];
    var sum = 1;
    for (var i = 0; i < n; i++) {
        s[i] <== x[i] * y;
        sum += (i + 1) * s[i] - (n - i) * x[i];
    }
    c <== sum * (sum - y);
}

component main {public [y]} = Rows(300);
