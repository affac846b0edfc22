"""Chains of field operations on card arrays, next to the same chain on the host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_executor import fields
from gpu_executor.errors import DeviceLostError, GpuError, OutOfMemoryError, VulkanError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.soak.mix import Draw, field_elements, size
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = (fields.BLS12_381_FR, fields.GOLDILOCKS, fields.BABYBEAR)
LARGEST = 4_096
LONGEST = 12
"""Operations in a chain."""
MOST_FAULTS = 20
"""Times that a chain is begun again."""
PASSING = (VulkanError, OutOfMemoryError)

Step = Callable[[Field, FieldArray, FieldArray], FieldArray]
STEPS: dict[str, Step] = {
    "x + y": lambda _, x, y: x + y,
    "x - y": lambda _, x, y: x - y,
    "x * y": lambda _, x, y: x * y,
    "-x + 7": lambda _, x, _y: -x + 7,
    "x^2": lambda field, x, _y: field.square(x),
    "x y + x": lambda field, x, y: field.fma(x, y, x),
    "1/x": lambda field, x, _y: field.inverse(x),
    "running products": lambda field, x, _y: field.prefix_product(x),
    "x + sum(x)": lambda field, x, _y: x + field.sum(x),
}
TRANSFORMS: dict[str, Step] = {
    "ntt": lambda field, x, _y: field.ntt(x),
    "intt": lambda field, x, _y: field.intt(x),
}


class Card:
    """A caller's own device, opened again when it is lost."""

    def __init__(self) -> None:
        self._gpu: PersistentVulkanBackend | None = None
        self.begun_again = 0

    def chain(self, draw: Draw) -> tuple[int, str | None]:
        """How many elements went through a chain of operations, and what was wrong if so."""
        field = FIELDS[draw.integers(len(FIELDS))]
        transforms = draw.random() < 0.5
        count = size(draw, LARGEST)
        if transforms:
            count = 1 << count.bit_length() - 1
        known = field_elements(field.prime)
        x, y = (
            field.from_words(known[draw.integers(0, len(known), count)], field.form)
            for _ in range(2)
        )
        steps = STEPS | TRANSFORMS if transforms else STEPS
        names = [str(name) for name in draw.choice(list(steps), int(draw.integers(1, LONGEST)))]
        expected = _done(field, [steps[name] for name in names], x, y)
        found = self._on_card(field, [steps[name] for name in names], x, y)
        if np.array_equal(found.numpy(), expected.numpy()):
            return count, None
        return count, f"{field.name}, {count:,} elements on the card: {', then '.join(names)}"

    def _on_card(self, field: Field, steps: list[Step], x: FieldArray, y: FieldArray) -> FieldArray:
        """Its arrays go with a card that fails, so the caller begins anew, as any caller must."""
        for _ in range(MOST_FAULTS):
            with contextlib.suppress(*PASSING):
                return self._once(field, steps, x, y)
            self.begun_again += 1
        return self._once(field, steps, x, y)

    def _once(self, field: Field, steps: list[Step], x: FieldArray, y: FieldArray) -> FieldArray:
        try:
            gpu = self._gpu = self._gpu or PersistentVulkanBackend()
            return _done(field, steps, gpu.to_device(x), gpu.to_device(y)).to_host()
        except DeviceLostError:
            self.close()
            raise

    def stats(self) -> Any:
        return None if self._gpu is None else self._gpu.stats()

    def close(self) -> None:
        gpu, self._gpu = self._gpu, None
        if gpu is not None:
            with contextlib.suppress(GpuError):
                gpu.close()


def _done(field: Field, steps: list[Step], x: FieldArray, y: FieldArray) -> FieldArray:
    for step in steps:
        x = step(field, x, y)
    return x
