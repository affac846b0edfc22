"""Seats: the devices that an executor may open, best first, each with the backend for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpu_executor.backend import Backend, open_backend
from gpu_executor.errors import GpuError, NoDeviceError, SettingsError
from gpu_executor.settings import Settings
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.webgpu.device import find_adapters

BackendName = Literal["auto", "vulkan", "webgpu", "cpu"]
NAMES: tuple[BackendName, ...] = ("auto", "vulkan", "webgpu", "cpu")
# A GPU by its own driver, then by WebGPU; what a CPU computes comes behind, ours last.
RANKS = {("vulkan", True): 0, ("webgpu", True): 1, ("vulkan", False): 2, ("webgpu", False): 3}
CPU_RANK = 4


@dataclass(frozen=True, slots=True)
class Seat:
    """A device behind a backend, not yet open."""

    backend: str
    device: str
    """Its name."""
    index: int | None
    """What the backend calls it."""
    on_gpu: bool

    @property
    def rank(self) -> int:
        return RANKS.get((self.backend, self.on_gpu), CPU_RANK)

    def open(self, settings: Settings) -> Backend:
        if self.backend == "cpu":
            return open_backend("cpu")
        return open_backend(self.backend, device=self.index, settings=settings)

    def __str__(self) -> str:
        return f"{self.device} by {self.backend}"


def ranked_seats(backend: BackendName) -> list[Seat]:
    """Every device that the backend, or any, can drive, best first; a backend that was named and
    has none is an error."""
    if backend not in NAMES:
        raise SettingsError(f"there is no backend {backend!r}; there are {', '.join(NAMES)}")
    finders: dict[str, Callable[[], list[Seat]]] = {
        "vulkan": _vulkan_seats,
        "webgpu": _webgpu_seats,
        "cpu": _cpu_seats,
    }
    if backend != "auto":
        return finders[backend]()
    found: list[Seat] = []
    for find in finders.values():
        try:
            found += find()
        except GpuError:
            continue  # no loader, no driver, no wgpu: `auto` takes what there is
    return sorted(found, key=lambda seat: seat.rank)


def chosen(
    seats: Sequence[Seat], device: str | int | None, devices: Literal["all"] | Sequence[Any] | None
) -> list[Seat]:
    """Which of them to open: the first, the one that was named, or several."""
    if devices is None:
        return [_named(seats, device)]
    if device is not None:
        raise SettingsError("give device= for one device or devices= for several, not both")
    if devices == "all":
        return [seat for seat in seats if seat.rank == seats[0].rank]
    if isinstance(devices, str) or not devices:
        raise SettingsError(f"devices= is 'all' or a list of devices, not {devices!r}")
    return [_named(seats, each) for each in devices]


def _named(seats: Sequence[Seat], wanted: str | int | None) -> Seat:
    if not seats:
        raise NoDeviceError("no backend finds a device")
    if wanted is None:
        return seats[0]
    if isinstance(wanted, int):
        if not 0 <= wanted < len(seats):
            raise NoDeviceError(f"there is no device {wanted}; there are {_list(seats)}")
        return seats[wanted]
    for seat in seats:
        if wanted.lower() in seat.device.lower():
            return seat
    raise NoDeviceError(f"no device matches {wanted!r}; there are {_list(seats)}")


def _list(seats: Sequence[Seat]) -> str:
    return ", ".join(f"{index}: {seat}" for index, seat in enumerate(seats))


def _vulkan_seats() -> list[Seat]:
    found = find_devices()
    return [Seat("vulkan", info.name, info.index, info.kind != "cpu") for info in found]


def _webgpu_seats() -> list[Seat]:
    return [
        Seat("webgpu", name, index, kind != "CPU")
        for index, (name, kind) in enumerate(find_adapters())
    ]


def _cpu_seats() -> list[Seat]:
    return [Seat("cpu", "NumPy", None, False)]
