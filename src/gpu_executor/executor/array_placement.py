"""Where the device arrays of an executor live: each lives on one of its devices, for as long as the
device is open.

A call on device arrays runs on the device that holds them. Arrays are never moved by a call: a call
whose arrays are on two devices is refused, and so is a call on an array whose device was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import describe
from gpu_executor.errors import (
    ArgumentTypeError,
    ClosedError,
    DeviceNotFoundError,
    GpuError,
    NoDeviceError,
)
from gpu_executor.executor.jobs import LabelledArray
from gpu_executor.executor.open_device import OpenDevice, describe_array, make_lost_error


class ArrayPlacement:
    """Finds the devices of arrays, and the devices that callers choose. Thread-safe."""

    def __init__(self, devices: Sequence[OpenDevice]) -> None:
        self._devices = devices

    def find_device(self, caller: str, arrays: Iterator[LabelledArray]) -> OpenDevice:
        """The device that holds all of the arrays; the default device if there are none. Raises for
        arrays on two devices, on none of the executor's, or on one that is lost or quarantined."""
        found: OpenDevice | None = None
        first = ""
        for label, array in arrays:
            holder = self.find_holder(array)
            if holder is None or holder.failed is not None:
                raise self._make_absence_error(caller, label, array, holder)
            if found is None:
                found, first = holder, label
            elif holder is not found:
                place = self._devices.index(found)
                raise ArgumentTypeError(
                    f"{caller}: {first} is on {self._describe(found)}, and "
                    f"{describe_array(label, array)} is on {self._describe(holder)}; a call runs "
                    f"on one device. Copy one of the arrays, with gpu.to_device(array, "
                    f"index={place}), or with array.copy_to(...) to another backend"
                )
        recording = self._find_recording() if found is None or len(self._devices) > 1 else None
        if found is None:
            return recording or self.select(None)
        if recording is not None and recording is not found:
            raise GpuError(
                f"{caller}: a graph is being recorded on {self._describe(recording)}, and a call "
                f"on {self._describe(found)} cannot be part of it; use arrays of one device"
            )
        return found

    def find_holder(self, array: DeviceArray) -> OpenDevice | None:
        """The device that holds an array; None if that is no device of this executor, or if the
        device was lost since."""
        memory = array.storage.device
        for device in self._devices:
            if device.array_device is memory:
                return device
        return None

    def check_not_lost(self, caller: str, array: DeviceArray) -> None:
        """Raise `DeviceLostError` if an array was on a device of this executor that was lost."""
        for device in self._devices:
            if device.has_lost(array):
                raise make_lost_error(caller, "the array", array, self._describe(device))

    def select(self, index: int | None) -> OpenDevice:
        """A device by its index in the executor; None for the first usable one."""
        found = self._devices
        if index is not None:
            listed = ", ".join(f"{place}: {each}" for place, each in enumerate(self._list_names()))
            if isinstance(index, bool) or not isinstance(index, Integral):
                raise ArgumentTypeError(
                    f"index= is {describe(index)}; it takes the index of a device in this "
                    f"executor, which has {listed}"
                )
            if not 0 <= index < len(self._devices):
                raise DeviceNotFoundError(
                    f"index={index}: there is no such device in this executor, which has {listed}"
                )
            found = [self._devices[index]]
        usable = next((each for each in found if each.failed is None), None)
        if usable is None:
            raise found[0].make_quarantine_error()
        return usable

    def is_recording(self) -> bool:
        """Whether this thread records a graph on one of the devices."""
        return self._find_recording() is not None

    def _find_recording(self) -> OpenDevice | None:
        for device in self._devices:
            if device.array_device is not None and device.array_device.is_recording:
                return device
        return None

    def _make_absence_error(
        self, caller: str, label: str, array: DeviceArray, holder: OpenDevice | None
    ) -> GpuError:
        """Why a call cannot use an array."""
        found, memory = describe_array(label, array), array.storage.device
        for device in self._devices:
            if device.has_lost(array) or (device is holder and memory.closed):
                return make_lost_error(caller, label, array, self._describe(device))
        if holder is not None:
            return NoDeviceError(
                f"{caller}: {found} is on {self._describe(holder)}, which is quarantined: "
                f"{holder.failed}; array.numpy() fetches it"
            )
        if memory.closed:
            return ClosedError(
                f"{caller}: {found} was on {memory.info.name} as another executor or backend "
                "opened it, which is closed; its elements are gone with it"
            )
        return ArgumentTypeError(
            f"{caller}: {found} is on {memory.info.name} as another executor or backend opened it; "
            "copy it with gpu.to_device(array), which is array.copy_to(gpu)"
        )

    def _describe(self, device: OpenDevice) -> str:
        if len(self._devices) == 1:
            return str(device.candidate)
        return f"device {self._devices.index(device)} ({device.candidate})"

    def _list_names(self) -> list[str]:
        return [str(each.candidate) for each in self._devices]
