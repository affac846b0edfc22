"""PersistentVulkanBackend: opens a device once and keeps everything that is expensive to make."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

from gpu_executor.call import Array
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ClosedError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.plan import Plan
from gpu_executor.settings import Settings
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.stats import Stats


class PersistentVulkanBackend:
    """A GPU held open. Use it with `with`, or `close()` it; calls may come from any thread.

    `device` is an index, a UUID prefix or a part of the name, and None means GPU_DEVICE or else the
    best device. `settings` replaces what is read from the environment.
    """

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._session = Session(settings or Settings.from_environment(), device)
        # Also frees everything when the backend is collected or the interpreter ends without
        # close().
        self._finalizer = weakref.finalize(self, self._session.close)

    @property
    def device(self) -> DeviceInfo:
        """The device that is open."""
        return self._session.info

    def run(self, kernel: Kernel, *arrays: Array, device_local: bool | None = None) -> Any:
        """Run a kernel on NumPy arrays; returns its output, or a tuple of several.

        `device_local` chooses the data path: True stages through device memory, False lets the
        kernel work on mapped host memory, None leaves it to the settings, the size and the device.
        """
        return self._session.run(kernel, arrays, device_local)

    def run_field_add(self, a: Array, b: Array, device_local: bool | None = None) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        result: Array = self.run(load("bls12_381_fq_add"), a, b, device_local=device_local)
        return result

    def explain(self, kernel: Kernel, *arrays: Array, device_local: bool | None = None) -> Plan:
        """The plan that `run` would follow for these arrays; print it to read why."""
        return self._session.route(kernel, arrays, device_local).plan

    def trim(self) -> int:
        """Free memory that no running call needs; returns the bytes given back to the device."""
        self._check_open()
        return self._session.trim()

    def stats(self) -> Stats:
        """Calls, caches, memory and where the time went."""
        return self._session.stats()

    def validation_messages(self) -> list[str]:
        """What the validation layer has said, where the backend was opened with it."""
        return list(self._session.instance.messages)

    def close(self) -> None:
        """Wait for running calls, save the pipeline cache, free everything. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> PersistentVulkanBackend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<PersistentVulkanBackend on {self.device.name}, {state}>"

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("the backend is closed; open another one")
