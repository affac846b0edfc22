"""Steps on device arrays and what binds them to memory: for every device that runs kernels."""
