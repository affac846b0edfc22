"""Exact arithmetic on the host: the oracle for tests, and an executor without a GPU."""
