"""The process that compiles for one family; it prints JSON."""

import json
import sys

from gpu_executor.compile_report.null_hardware import compile_workload
from gpu_executor.errors import GpuError

if __name__ == "__main__":
    try:
        json.dump(compile_workload(), sys.stdout)
    except GpuError as error:
        sys.exit(str(error))
