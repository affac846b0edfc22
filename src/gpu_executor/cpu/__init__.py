"""The CPU backend, and the oracle for field arithmetic that tests compare every backend with."""
