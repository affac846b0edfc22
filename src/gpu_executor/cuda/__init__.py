"""CUDA's driver library, as far as device arrays are exchanged with other libraries through it."""
