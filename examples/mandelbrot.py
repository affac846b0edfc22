"""The Mandelbrot set, by a kernel of one's own: mandelbrot.comp beside this file.

glslc --target-env=vulkan1.2 examples/mandelbrot.comp -o examples/mandelbrot.spv
python examples/mandelbrot.py [-o build/mandelbrot.png] [--width 900]
"""

import argparse
import struct
import time
import zlib
from pathlib import Path

import numpy as np

import gpu_executor as gx

MOST = 200  # steps; a point that is still there belongs to the set

# Arguments, their types and their access are read from the code. What the code does not say is that
# each element of the result depends on the same elements of the arguments alone.
KERNEL = gx.Kernel.from_spirv(Path(__file__).with_name("mandelbrot.spv"), split="elements")


def make_points(width: int) -> tuple[np.ndarray, np.ndarray]:
    """The points of a picture that is one and a half times as wide as it is high."""
    columns = np.linspace(-2.2, 0.8, width, dtype=np.float32)
    rows = np.linspace(-1, 1, width * 2 // 3, dtype=np.float32)
    x, y = np.meshgrid(columns, rows)
    return x, y


def make_palette() -> np.ndarray:
    """A colour for each number of steps, as bytes of red, green and blue; the set is black."""
    share = np.log(np.arange(1, MOST + 2)) / np.log(MOST)
    places = [0, 0.16, 0.42, 0.64, 0.86, 1]
    channels = [0, 32, 237, 255, 90, 30], [7, 107, 255, 170, 20, 0], [60, 203, 255, 0, 40, 60]
    palette = np.stack([np.interp(share, places, each) for each in channels], 1).astype(np.uint8)
    palette[MOST] = 0
    return palette


def encode_png(pixels: np.ndarray, palette: np.ndarray) -> bytes:
    """A PNG with one byte for each pixel: the index of its colour."""
    height, width = pixels.shape
    rows = np.insert(pixels, 0, 0, axis=1).tobytes()  # each row begins with its filter, none
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": palette.tobytes(),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    parts = [b"\x89PNG\r\n\x1a\n"]
    for name, data in chunks.items():
        check = struct.pack(">I", zlib.crc32(name + data))
        parts += [struct.pack(">I", len(data)), name, data, check]
    return b"".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the Mandelbrot set.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/mandelbrot.png"))
    parser.add_argument("--width", type=int, default=900, help="pixels")
    options = parser.parse_args()
    if options.width < 2:
        parser.error(f"--width is {options.width}; it must be 2 or more")
    x, y = make_points(options.width)
    with gx.GpuExecutor("vulkan") as gpu:  # of the backends, Vulkan takes SPIR-V
        gpu.run(KERNEL, x[:1], y[:1], params={"most": MOST})  # the first call compiles the kernel
        begun = time.perf_counter()
        steps = gpu.run(KERNEL, x, y, params={"most": MOST})
        milliseconds = (time.perf_counter() - begun) * 1e3
        print(gpu.explain(KERNEL, x, y, params={"most": MOST}))
        print(f"\n{int(steps.sum()):,} steps in {milliseconds:.1f} ms on {gpu.device.name}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_bytes(encode_png(steps.astype(np.uint8), make_palette()))
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
