"""Seats: the devices that an executor may open, best first, each with the backend for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from gpu_executor.backend import Backend, open_backend
from gpu_executor.errors import DeviceNotFoundError, GpuError, NoDeviceError, SettingsError
from gpu_executor.settings import Settings
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.vulkan.kept_figures import read_figures
from gpu_executor.webgpu.device import find_adapters

BackendName = Literal["auto", "vulkan", "webgpu", "cpu"]
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
    rate: float | None = None
    """Bytes a second that a kernel reads and writes there, where the device was calibrated."""
    uuid: str = ""

    @property
    def rank(self) -> int:
        return RANKS.get((self.backend, self.on_gpu), CPU_RANK)

    def open(self, settings: Settings) -> Backend:
        if self.backend == "cpu":
            return open_backend("cpu")
        return open_backend(self.backend, device=self.index, settings=settings)

    def __str__(self) -> str:
        return f"{self.device} by {self.backend}"


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Seat]):
    """Seats, best first, and why there are no more."""

    seats: tuple[Seat, ...]
    absent: tuple[str, ...] = ()
    """Backends without a device, or that could not look for one, in words."""

    def __getitem__(self, index: Any) -> Any:
        return self.seats[index]

    def __len__(self) -> int:
        return len(self.seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(self.seats)

    def named(self, wanted: str | int) -> Seat:
        """By its place in the ranking, a prefix of its UUID or a part of its name."""
        text = str(wanted).strip().lower()
        if text.isdecimal():
            # A place and nothing else: "15" is not to find "LLVM 15".
            found = list(self.seats[int(text) : int(text) + 1])
        else:
            by_uuid = [seat for seat in self.seats if seat.uuid and seat.uuid.startswith(text)]
            found = by_uuid or [seat for seat in self.seats if text in seat.device.lower()]
        if not found:
            listed = ", ".join(f"{place}: {seat}" for place, seat in enumerate(self.seats))
            raise DeviceNotFoundError(
                f"no device matches {wanted!r} as place in the ranking, UUID prefix or part of a "
                f"name; there are {listed}"
            )
        return found[0]


def ranked_seats(backend: BackendName, settings: Settings | None = None) -> Ranking:
    """Every device that the backend, or any, can drive; a backend that was named and has none is
    an error."""
    settings = settings or Settings.from_environment()
    if backend != "auto" and backend not in FINDERS:
        names = ", ".join(["auto", *FINDERS])
        raise SettingsError(f"there is no backend {backend!r}; there are {names}")
    if backend != "auto":
        seats = FINDERS[backend](settings)
        if not seats:
            raise NoDeviceError(f"{backend} finds no device")
        return Ranking(tuple(_in_order(seats)))
    found: list[Seat] = []
    absent: list[str] = []
    for name, find in FINDERS.items():
        try:
            seats = find(settings)
        except GpuError as error:  # no loader, no driver, no wgpu: `auto` takes what there is
            absent.append(f"{name}: {error}")
            continue
        found += seats
        if not seats:
            absent.append(f"{name}: it finds no device")
    return Ranking(tuple(_in_order(found)), tuple(absent))


def chosen(
    ranking: Ranking,
    device: str | int | None,
    devices: Literal["all"] | Sequence[str | int] | None,
) -> list[Seat]:
    """Which of them to open: the first, the one that was named, or several."""
    if devices is None:
        return [ranking[0] if device is None else ranking.named(device)]
    if device is not None:
        raise SettingsError("give device= for one device or devices= for several, not both")
    if isinstance(devices, str) and devices == "all":
        return [seat for seat in ranking if seat.rank == ranking[0].rank]
    several = isinstance(devices, Iterable) and not isinstance(devices, str)
    seats = [ranking.named(each) for each in devices] if several else []
    if not seats:
        raise SettingsError(f"devices= is 'all' or a list of devices, not {devices!r}")
    return seats


def _in_order(seats: Sequence[Seat]) -> list[Seat]:
    """By rank; of one rank the fastest first, where all of them were measured."""
    ordered: list[Seat] = []
    for _, group in groupby(sorted(seats, key=lambda seat: seat.rank), lambda seat: seat.rank):
        alike = list(group)
        if all(seat.rate is not None for seat in alike):
            alike.sort(key=lambda seat: -(seat.rate or 0.0))
        ordered += alike
    return ordered


def _vulkan_seats(settings: Settings) -> list[Seat]:
    seats = []
    for info in find_devices():
        folder = settings.cache_dir if settings.calibrate else None
        figures = None if folder is None else read_figures(folder, info)
        rate = None if figures is None else figures.kernel
        seats.append(Seat("vulkan", info.name, info.index, info.kind != "cpu", rate, info.uuid))
    return seats


def _webgpu_seats(_settings: Settings) -> list[Seat]:
    return [
        Seat("webgpu", name, index, kind != "CPU")
        for index, (name, kind) in enumerate(find_adapters())
    ]


def _cpu_seats(_settings: Settings) -> list[Seat]:
    return [Seat("cpu", "NumPy", None, False)]


FINDERS: dict[str, Callable[[Settings], list[Seat]]] = {
    "vulkan": _vulkan_seats,
    "webgpu": _webgpu_seats,
    "cpu": _cpu_seats,
}
