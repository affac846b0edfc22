"""`python -m gpu_executor.cli`, for where the command is not installed."""

from gpu_executor.cli.main import main

main()
