"""`python -m gpu_executor.cli`, for machines on which the command `gpu-executor` is not
installed."""

from gpu_executor.cli import main

main()
