pragma circom 2.2.0;

// Inputs that are buses, and an array of buses.
bus Point() {
    signal x;
    signal y;
}

template Chord() {
    input Point() p;
    input Point() q[2];
    signal output c;
    c <== p.x * q[0].y + p.y - 3 * q[1].x + 5 * q[1].y + q[0].x;
}

component main = Chord();
