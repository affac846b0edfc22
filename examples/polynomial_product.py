"""Products of polynomials modulo a prime of 255 bits: by transforms on the device, term by term.

python examples/polynomial_product.py [-o build/polynomial-product.svg] [--largest 14]
"""

import argparse
import functools
import random
import time
from pathlib import Path

import numpy as np

import gpu_executor as gx
from gpu_executor.report.charts import ChartAxis, ChartLine, DataPoint
from gpu_executor.report.format import format_power, format_time
from gpu_executor.report.picture import draw_picture
from gpu_executor.report.shared_figures import make_line_figure

Fr = gx.fields.BLS12_381_FR


def draw_polynomial(size: int, seed: int) -> list[int]:
    """Random coefficients, the constant one first."""
    numbers = random.Random(seed)
    return [numbers.randrange(Fr.modulus) for _ in range(size)]


def multiply_by_terms(a: list[int], b: list[int]) -> list[int]:
    """Every coefficient of a times every one of b, in Python's integers: n * n products."""
    product = np.zeros(len(a) + len(b) - 1, dtype=object)
    for index, factor in enumerate(a):
        product[index : index + len(b)] += factor * np.array(b, dtype=object)
    return [int(each) % Fr.modulus for each in product]


def evaluate(polynomial: list[int], x: int) -> int:
    return functools.reduce(lambda y, c: (y * x + c) % Fr.modulus, reversed(polynomial), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time products of polynomials.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/polynomial-product.svg"))
    parser.add_argument("--largest", type=int, default=14, choices=range(4, 25))
    options = parser.parse_args()
    by_terms, by_transforms = [], []
    with gx.GpuExecutor("vulkan") as gpu:
        for size in (1 << log for log in range(4, options.largest + 1, 2)):
            a, b = draw_polynomial(size, 2 * size), draw_polynomial(size, 2 * size + 1)
            x, y = gpu.to_device(Fr.encode(a)), gpu.to_device(Fr.encode(b))
            times = []
            for _ in range(6):  # the first product of a size compiles
                begun = time.perf_counter()
                product = Fr.poly_mul(x, y)
                gpu.synchronize()  # without it, the product is submitted and not waited for
                times.append((time.perf_counter() - begun) * 1e3)
            by_transforms.append(DataPoint(size, min(times)))
            found, r = product.tolist(), random.randrange(Fr.modulus)
            assert evaluate(found, r) == evaluate(a, r) * evaluate(b, r) % Fr.modulus
            print(f"{size:6,} coefficients: {format_time(min(times))}, c[{size}] = {found[size]}")
            if size <= 1 << 10:  # larger ones take seconds
                begun = time.perf_counter()
                assert multiply_by_terms(a, b) == found
                by_terms.append(DataPoint(size, (time.perf_counter() - begun) * 1e3))
        device = gpu.device.name
    lines = [ChartLine("term by term", by_terms, 0), ChartLine("Fr.poly_mul", by_transforms, 1)]
    title = "Time of a product of two polynomials"
    caption = "Term by term: NumPy on the CPU, with Python's integers. Fr.poly_mul: on the device."
    sizes = ChartAxis("coefficients", format_power, ticks=[point.x for point in by_transforms])
    figure = make_line_figure("", title, caption, lines, sizes, ChartAxis("time", format_time))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(draw_picture(figure, device), encoding="utf-8")
    print(f"every product is right; written to {options.output}")


if __name__ == "__main__":
    main()
