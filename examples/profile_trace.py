"""The same jobs one by one and as a batch, under the profiler: a trace for Perfetto, and a picture.

python examples/profile_trace.py [-o build/profile-trace.svg] [--trace build/trace.json]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gpu_executor as gx
from gpu_executor.report.picture import draw_picture
from gpu_executor.report.timeline import make_timeline, make_timeline_figure

JOBS = 8


def profile_fastest(gpu: gx.GpuExecutor, function: Callable[[], object]):
    """The profile of the fastest of some calls; the first one, which compiles, is not profiled."""
    function()
    profiles = []
    for _ in range(20):
        with gpu.profile() as profile:
            function()
        profiles.append(profile)
    return min(
        profiles, key=lambda each: max(s.end_ns for s in each.spans) - each.spans[0].begin_ns
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Profile a batch.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/profile-trace.svg"))
    parser.add_argument("--trace", type=Path, default=Path("build/trace.json"))
    options = parser.parse_args()
    for path in (options.output, options.trace):
        path.parent.mkdir(parents=True, exist_ok=True)

    add = gx.kernels.load("vector_add_u32")
    settings = gx.Settings(device_local=True)  # with copies to and from device memory
    with gx.GpuExecutor("vulkan", settings=settings) as gpu:
        # Every job is a column of a table, which the host gathers from the rows and scatters again.
        rows = 1 << (17 if gpu.device.kind == "cpu" else 22)
        table = np.arange(rows * JOBS, dtype=np.uint32).reshape(rows, JOBS)
        sums = np.zeros_like(table)
        jobs, outputs = [(column, column) for column in table.T], list(sums.T)

        def run_one_by_one() -> None:
            for job, output in zip(jobs, outputs, strict=True):
                gpu.run(add, *job, out=output)

        one_by_one = profile_fastest(gpu, run_one_by_one)
        sums[:] = 0
        batch = profile_fastest(gpu, lambda: gpu.run_batch(add, jobs, out=outputs))
        assert np.array_equal(sums, 2 * table)
        batch.save_trace(options.trace)  # or: with gpu.profile(trace="trace.json")

    for title, profile in (("one by one", one_by_one), ("as a batch", batch)):
        stages = ", ".join(f"{name} {1e3 * each:.2f}" for name, each in profile.stages().items())
        print(f"{title}, milliseconds by stage: {stages}")
    timelines = [make_timeline("run", one_by_one.spans), make_timeline("run_batch", batch.spans)]
    title = f"{JOBS} jobs, one by one and as a batch"
    caption = (
        "fill: the host copies arrays to memory that the device reads. copy in, copy out: the "
        "device copies. compute: the kernel. drain: the host copies results."
    )
    figure = make_timeline_figure("", title, caption, timelines)
    options.output.write_text(draw_picture(figure, gpu.device.name), encoding="utf-8")
    print(f"the picture is {options.output}; open {options.trace} at ui.perfetto.dev")


if __name__ == "__main__":
    main()
