"""Random sequences of field operations on device arrays, compared with the same operations on the
host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from gpu_executor import fields
from gpu_executor.errors import DeviceLostError, GpuError, OutOfMemoryError, VulkanError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.soak.workload import draw_size, field_elements
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = (fields.BLS12_381_FR, fields.GOLDILOCKS, fields.BABYBEAR)
MAX_ELEMENTS = 4_096
MAX_OPERATIONS = 11
"""The number of operations in a sequence."""
MAX_RESTARTS = 20
"""The maximum number of restarts of one sequence, each after an injected fault."""
RETRIED_ERRORS = (VulkanError, OutOfMemoryError)

Operation = Callable[[Field, FieldArray, FieldArray], FieldArray]
OPERATIONS: dict[str, Operation] = {
    "x + y": lambda _, x, y: x + y,
    "x - y": lambda _, x, y: x - y,
    "x * y": lambda _, x, y: x * y,
    "-x + 7": lambda _, x, _y: -x + 7,
    "x^2": lambda field, x, _y: field.square(x),
    "x y + x": lambda field, x, y: field.fma(x, y, x),
    "1/x": lambda field, x, _y: field.inverse(x),
    "running sums": lambda field, x, _y: field.prefix_sum(x),
    "running products": lambda field, x, _y: field.prefix_product(x),
    "x + sum(x)": lambda field, x, _y: x + field.sum(x),
}
TRANSFORMS: dict[str, Operation] = {
    "ntt": lambda field, x, _y: field.ntt(x),
    "intt": lambda field, x, _y: field.intt(x),
}


class FieldOperationRunner:
    """Runs random sequences on a device of its own, which it reopens after a device loss."""

    def __init__(self) -> None:
        self._gpu: PersistentVulkanBackend | None = None
        self.restarts = 0

    def run_sequence(self, rng: Generator) -> tuple[int, str | None]:
        """Run one random sequence; return the number of elements, and a description of a wrong
        result.
        """
        field = FIELDS[rng.integers(len(FIELDS))]
        transforms = rng.random() < 0.5
        count = draw_size(rng, MAX_ELEMENTS)
        if transforms:
            count = 1 << count.bit_length() - 1
        elements = field_elements(field.prime)
        x, y = (
            field.from_words(elements[rng.integers(0, len(elements), count)], field.form)
            for _ in range(2)
        )
        known = OPERATIONS | TRANSFORMS if transforms else OPERATIONS
        length = int(rng.integers(1, MAX_OPERATIONS + 1))
        names = [str(name) for name in rng.choice(list(known), length)]
        operations = [known[name] for name in names]
        expected = _apply(field, operations, x, y)
        found = self._apply_on_device(field, operations, x, y)
        if np.array_equal(found.numpy(), expected.numpy()):
            return count, None
        return count, f"{field.name}, {count:,} elements on the device: {', then '.join(names)}"

    def _apply_on_device(
        self, field: Field, operations: list[Operation], x: FieldArray, y: FieldArray
    ) -> FieldArray:
        """Apply the operations; restart them after a fault, because the device's arrays are
        lost.
        """
        for _ in range(MAX_RESTARTS):
            with contextlib.suppress(*RETRIED_ERRORS):
                return self._apply_once(field, operations, x, y)
            self.restarts += 1
        return self._apply_once(field, operations, x, y)

    def _apply_once(
        self, field: Field, operations: list[Operation], x: FieldArray, y: FieldArray
    ) -> FieldArray:
        try:
            gpu = self._gpu = self._gpu or PersistentVulkanBackend()
            return _apply(field, operations, gpu.to_device(x), gpu.to_device(y)).to_host()
        except DeviceLostError:
            self.close()
            raise

    def count_bytes(self) -> int:
        """Return the bytes that the device holds; 0 if none is open."""
        return 0 if self._gpu is None else self._gpu.stats().bytes_held

    def close(self) -> None:
        """Close the device; the next sequence opens it again."""
        gpu, self._gpu = self._gpu, None
        if gpu is not None:
            with contextlib.suppress(GpuError):
                gpu.close()


def _apply(field: Field, operations: list[Operation], x: FieldArray, y: FieldArray) -> FieldArray:
    for operation in operations:
        x = operation(field, x, y)
    return x
