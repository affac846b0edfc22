"""`python -m gpu_executor.cli`, where the command `gpu-executor` is not installed."""

from gpu_executor.cli.main import main

main()
