"""Benchmarks, run by `gpu-executor bench`: times and rates, beside what the device allows.

The attributes of the result classes are the keys of the JSON files.
"""
