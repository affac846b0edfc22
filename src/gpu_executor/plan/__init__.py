"""Planning: pure functions from a request, a device and its calibration to a `CallPlan`."""

from gpu_executor.arrays.idle_memory import round_up_to_class
from gpu_executor.plan.bounds import check_grid
from gpu_executor.plan.forecast import MAX_SLOTS, DataPath, QueueUse
from gpu_executor.plan.plan import (
    CallPlan,
    ElementRange,
    Plan,
    make_plan,
    plan_on_device,
    shrink_plan,
)
from gpu_executor.plan.request import Request, RunOptions

__all__ = [
    "MAX_SLOTS",
    "CallPlan",
    "DataPath",
    "ElementRange",
    "Plan",
    "QueueUse",
    "Request",
    "RunOptions",
    "check_grid",
    "make_plan",
    "plan_on_device",
    "round_up_to_class",
    "shrink_plan",
]
