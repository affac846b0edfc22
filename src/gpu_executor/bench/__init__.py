"""Benchmarks: what is fast, by how much, and how far from the floor. Run by the command line."""
