"""VulkanSpirvBackend: makes and frees everything at each call. The baseline to compare with."""

from __future__ import annotations

from typing import Any

from gpu_executor.call import Array, check
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.settings import Settings
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.stats import Stats


class VulkanSpirvBackend:
    """The same `run` as the persistent backend, with nothing kept from one call to the next."""

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._wanted = device
        self._settings = settings or Settings.from_environment()
        self._last: Stats | None = None
        self._messages: list[str] = []

    def run(
        self,
        kernel: Kernel,
        *arrays: Array,
        device_local: bool | None = None,
        out: Any = None,
    ) -> Any:
        """Open a device, run the kernel on NumPy arrays, free the device."""
        signature = check(kernel, arrays)
        if out is not None:
            signature.call(arrays).use_outputs(
                out
            )  # what does not fit is said before a device opens
        session = Session(self._settings, self._wanted, keep=False)
        try:
            return session.run(kernel, arrays, device_local, out)
        finally:
            self._last = session.stats()
            session.close()
            self._messages += session.instance.messages

    def run_field_add(self, a: Array, b: Array, device_local: bool | None = None) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        result: Array = self.run(load("bls12_381_fq_add"), a, b, device_local=device_local)
        return result

    def stats(self) -> Stats | None:
        """Of the last call; None before the first."""
        return self._last

    def validation_messages(self) -> list[str]:
        """What the validation layer has said, where the settings ask for it."""
        return list(self._messages)

    def close(self) -> None:
        """There is nothing to free: every call frees what it made."""

    def __enter__(self) -> VulkanSpirvBackend:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
