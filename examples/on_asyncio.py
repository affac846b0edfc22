"""asyncio: requests that await the device, while the event loop does other things.

python examples/on_asyncio.py
"""

import asyncio

import numpy as np

import gpu_executor as gx

matmul = gx.kernels.load("matmul_f32")


async def answer(gpu: gx.GpuExecutor, name: str, side: int) -> None:
    """A request, as a server would have many at once: a matrix squared."""
    matrix = np.eye(side, dtype=np.float32) * 3
    squared = await gpu.run_async(matmul, matrix, matrix)
    print(f"{name}: a matrix of {side} x {side} squared, its trace is {np.trace(squared):.0f}")


async def heart(beats: list[float]) -> None:
    """Beats as long as the event loop is not held up."""
    while True:
        beats.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001)


async def main() -> None:
    beats: list[float] = []
    with gx.GpuExecutor() as gpu:
        beating = asyncio.create_task(heart(beats))
        await asyncio.gather(*(answer(gpu, f"request {n}", 20 * n) for n in range(1, 6)))
        beating.cancel()
    print(f"meanwhile the heart beat {len(beats)} times")


asyncio.run(main())
