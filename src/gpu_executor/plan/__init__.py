"""How calls will be run: pure functions from what is asked and what there is to a `Plan`."""

from gpu_executor.plan.bounds import round_up_to_class
from gpu_executor.plan.forecast import MOST_SLOTS, DataPath, QueueUse
from gpu_executor.plan.plan import Piece, Plan, make_plan, plan_on_device, shrunk
from gpu_executor.plan.request import Request, RunOptions

__all__ = [
    "MOST_SLOTS",
    "DataPath",
    "Piece",
    "Plan",
    "QueueUse",
    "Request",
    "RunOptions",
    "make_plan",
    "plan_on_device",
    "round_up_to_class",
    "shrunk",
]
