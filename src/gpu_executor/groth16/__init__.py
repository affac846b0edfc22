"""Groth16 proofs of circom circuits on a GPU: files of snarkjs and circom in, proofs out."""
