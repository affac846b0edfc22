"""Calls of kernels on arrays, checked; steps on device arrays; streams of calls."""
