"""Benchmarks, run by `gpu-executor bench`: times, rates, and how far they are from their floors.

The attributes of the result classes are the keys of the JSON files.
"""
