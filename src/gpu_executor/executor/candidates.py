"""Device candidates: the devices that an executor may open, ranked, each with its backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from gpu_executor.backend import Backend, open_backend
from gpu_executor.errors import DeviceNotFoundError, GpuError, NoDeviceError, SettingsError
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.vulkan.disk_cache import read_calibration
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.webgpu.device import find_adapters

BackendName = Literal["auto", "vulkan", "webgpu", "cpu"]
# A GPU by Vulkan, a GPU by WebGPU, then software drivers; the CPU backend comes last.
RANKS = {("vulkan", True): 0, ("webgpu", True): 1, ("vulkan", False): 2, ("webgpu", False): 3}
CPU_RANK = 4


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """A device and the backend that can open it."""

    backend: str
    device: str
    """The device's name."""
    index: int | None
    """The backend's index of the device."""
    on_gpu: bool
    rate: float | None = None
    """Bytes per second that a kernel reads and writes, from the calibration; None without one."""
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
class DeviceRanking(Sequence[DeviceCandidate]):
    """Device candidates, best first, and the reasons why backends have none."""

    candidates: tuple[DeviceCandidate, ...]
    absent: tuple[str, ...] = ()
    """For each backend without a device, its name and the reason."""

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[DeviceCandidate]:
        return iter(self.candidates)

    def find(self, wanted: str | int) -> DeviceCandidate:
        """Find a device by its place in the ranking, a prefix of its UUID or a part of its name."""
        text = str(wanted).strip().lower()
        if text.isdecimal():
            # A number is always a place in the ranking: "15" must not find "LLVM 15".
            found = list(self.candidates[int(text) : int(text) + 1])
        else:
            by_uuid = [
                candidate
                for candidate in self.candidates
                if candidate.uuid and candidate.uuid.startswith(text)
            ]
            found = by_uuid or [
                candidate for candidate in self.candidates if text in candidate.device.lower()
            ]
        if not found:
            listed = ", ".join(
                f"{place}: {candidate}" for place, candidate in enumerate(self.candidates)
            )
            raise DeviceNotFoundError(
                f"no device matches {wanted!r} as a place in the ranking, a UUID prefix or a part "
                f"of a name; there are {listed}"
            )
        return found[0]


def rank_devices(backend: BackendName, settings: Settings | None = None) -> DeviceRanking:
    """Rank every device of a backend, or of all backends for "auto". A backend that is named and
    has no device is an error."""
    settings = resolve_settings(settings)
    if backend != "auto" and backend not in FINDERS:
        names = ", ".join(["auto", *FINDERS])
        raise SettingsError(f"there is no backend {backend!r}; there are {names}")
    if backend != "auto":
        candidates = FINDERS[backend](settings)
        if not candidates:
            raise NoDeviceError(f"the backend {backend!r} finds no device")
        return DeviceRanking(tuple(_sort_best_first(candidates)))
    found: list[DeviceCandidate] = []
    absent: list[str] = []
    for name, find in FINDERS.items():
        try:
            candidates = find(settings)
        except GpuError as error:  # no loader, no driver or no wgpu: "auto" skips the backend
            absent.append(f"{name}: {error}")
            continue
        found += candidates
        if not candidates:
            absent.append(f"{name}: no device found")
    return DeviceRanking(tuple(_sort_best_first(found)), tuple(absent))


def select_candidates(
    ranking: DeviceRanking,
    device: str | int | None,
    devices: Literal["all"] | Sequence[str | int] | None,
) -> list[DeviceCandidate]:
    """The devices to open: the first of the ranking, the one that `device` names, or several."""
    if devices is None:
        return [ranking[0] if device is None else ranking.find(device)]
    if device is not None:
        raise SettingsError("give device= for one device or devices= for several, not both")
    if isinstance(devices, str) and devices == "all":
        return [candidate for candidate in ranking if candidate.rank == ranking[0].rank]
    several = isinstance(devices, Iterable) and not isinstance(devices, str)
    candidates = [ranking.find(each) for each in devices] if several else []
    if not candidates:
        raise SettingsError(f"devices= must be 'all' or a list of devices, not {devices!r}")
    return candidates


def _sort_best_first(candidates: Sequence[DeviceCandidate]) -> list[DeviceCandidate]:
    """Sort by rank. Devices of one rank are sorted by rate if all of them are calibrated."""
    ordered: list[DeviceCandidate] = []
    for _, group in groupby(
        sorted(candidates, key=lambda candidate: candidate.rank), lambda candidate: candidate.rank
    ):
        alike = list(group)
        if all(candidate.rate is not None for candidate in alike):
            alike.sort(key=lambda candidate: -(candidate.rate or 0.0))
        ordered += alike
    return ordered


def _find_vulkan(settings: Settings) -> list[DeviceCandidate]:
    candidates = []
    for info in find_devices():
        folder = settings.cache_dir if settings.calibrate else None
        calibration = None if folder is None else read_calibration(folder, info)
        rate = None if calibration is None else calibration.kernel
        candidates.append(
            DeviceCandidate("vulkan", info.name, info.index, info.kind != "cpu", rate, info.uuid)
        )
    return candidates


def _find_webgpu(_settings: Settings) -> list[DeviceCandidate]:
    return [
        DeviceCandidate("webgpu", name, index, kind != "CPU")
        for index, (name, kind) in enumerate(find_adapters())
    ]


def _find_cpu(_settings: Settings) -> list[DeviceCandidate]:
    return [DeviceCandidate("cpu", "NumPy", None, False)]


# The function that finds the devices of each backend.
FINDERS: dict[str, Callable[[Settings], list[DeviceCandidate]]] = {
    "vulkan": _find_vulkan,
    "webgpu": _find_webgpu,
    "cpu": _find_cpu,
}
