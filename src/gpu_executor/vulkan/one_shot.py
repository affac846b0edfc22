"""VulkanSpirvBackend: creates and frees everything in each call, as a baseline for comparisons."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from gpu_executor.call import Array, as_arrays, check
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.plan import RunOptions
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.vulkan.batch import run_batch
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.stats import Stats


class VulkanSpirvBackend:
    """The same `run` as the persistent backend, with nothing cached between calls."""

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._wanted = device
        self._settings = resolve_settings(settings)
        self._last: Stats | None = None
        self._messages: list[str] = []

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike,
        device_local: bool | None = None,
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Open a device, run the kernel on NumPy arrays, close the device."""
        given = as_arrays(kernel, arrays)
        call = check(kernel, given, out_shape=out_shape).make_call(given, params)
        if out is not None:
            call.use_outputs(out)  # checked before a device is opened
        with self._open_session() as session:
            return session.run(kernel, given, device_local, out, params=params, out_shape=out_shape)

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Sequence[Sequence[Array]],
        *,
        out: Sequence[Any] | None = None,
        device_local: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Open a device, run a batch of jobs one after the other, close the device."""
        options = RunOptions(device_local, pipelined=False)
        with self._open_session() as session:
            return run_batch(session, kernel, jobs, out, options, params)

    def run_field_add(self, a: Array, b: Array, device_local: bool | None = None) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        result: Array = self.run(load("bls12_381_fq_add"), a, b, device_local=device_local)
        return result

    def stats(self) -> Stats | None:
        """Return the counters of the last call; None before the first call."""
        return self._last

    def validation_messages(self) -> list[str]:
        """Return the messages of the validation layer, if the settings enable it."""
        return list(self._messages)

    def close(self) -> None:
        """Do nothing: each call frees what it created."""

    @contextlib.contextmanager
    def _open_session(self) -> Iterator[Session]:
        session = Session(self._settings, self._wanted, keep=False)
        try:
            yield session
        finally:
            self._last = session.stats()
            session.close()
            self._messages += session.instance.messages

    def __enter__(self) -> VulkanSpirvBackend:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
