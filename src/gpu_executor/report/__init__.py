"""Reports: the results of benchmarks as one HTML page without references to other files."""
