"""What an executor would do with a call, and why, in words."""

from __future__ import annotations

from gpu_executor.errors import ClosedError
from gpu_executor.executor.arguments import kernel_in
from gpu_executor.executor.crew import Crew
from gpu_executor.executor.seats import Ranking
from gpu_executor.kernel import Kernel


def explain(ranking: Ranking, crew: Crew, kernel: Kernel, count: int) -> str:
    """The ranking, who would run a call of that many elements, and the plan for it."""
    crew.line.check_open()
    kernel_in(kernel)
    opened = {id(device.seat) for device in crew.devices}
    lines = ["devices, best first (* is open):"]
    for place, seat in enumerate(ranking):
        rate = "" if seat.rate is None else f", {seat.rate / 1e9:.1f} GB/s as calibrated"
        lines.append(f"  {'*' if id(seat) in opened else ' '} {place}: {seat}{rate}")
    lines += [f"    -  {absent}" for absent in ranking.absent]
    if len(crew.devices) > 1:
        lines.append("shares of a large call or a batch, by what the devices were seen to do:")
        for who, (device, share) in enumerate(
            zip(crew.devices, crew.rates.shares(kernel), strict=True)
        ):
            left = "" if device.failed is None else f", left alone: {device.failed}"
            lines.append(f"    {who}: {share:.0%} {device.seat}{left}")
    first = next((each for each in crew.devices if each.failed is None), crew.devices[0])
    if crew.small is not None:
        sizes = [f"{size:,}" for size in crew.small.sizes(first.seat, kernel)]
        found = f"under {', '.join(sizes)} bytes" if sizes else "none so far"
        lines.append(f"small calls of {kernel.name} found to be faster on the CPU: {found}")
    try:
        plan = first.explain(kernel, count)
    except ClosedError:
        crew.line.check_open()  # it was shut down meanwhile, and that is what is said
        raise
    return "\n".join(lines if plan is None else [*lines, "", str(plan)])
