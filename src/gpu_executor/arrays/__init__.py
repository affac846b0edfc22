"""Device arrays, typed arrays, which arrays share memory, and memory that results hold."""
