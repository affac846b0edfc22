"""Everything that can go wrong, in one tree.

GpuError
+-- LoaderNotFoundError                no Vulkan loader on this machine
+-- NoDeviceError                      no driver, or no device that will do
|   +-- DeviceNotFoundError            the device asked for is not there (also LookupError)
+-- SettingsError                      an environment variable or setting (also ValueError)
+-- KernelError                        a kernel that cannot be (also ValueError)
|   +-- SpirvError                     its SPIR-V is not what it should be
|   +-- DeviceLacksError               the device lacks what the SPIR-V needs
+-- NotRunHereError                    a kernel called without an executor (also TypeError)
+-- ArgumentTypeError                  an argument of the wrong type or dtype (also TypeError)
+-- ArgumentShapeError                 an argument of the wrong shape (also ValueError)
+-- ElementRangeError                  a field element not below the modulus (also ValueError)
+-- OutOfMemoryError                   the device or the pool has no more (also MemoryError)
+-- ClosedError                        the backend is closed already (also RuntimeError)
|   +-- ForkedError                    opened before fork(), used in the child
+-- QueueFullError                     more work waits than an executor was allowed
+-- WrongResultError                   a device's result is not the CPU's
+-- VulkanError                        a Vulkan call returned an error
    +-- DeviceLostError                the device is gone; reopen the backend
"""

from __future__ import annotations


class GpuError(Exception):
    """The root: `except gx.GpuError` catches everything this package raises on purpose."""


class LoaderNotFoundError(GpuError):
    """The Vulkan loader (libvulkan) is not installed."""


class NoDeviceError(GpuError):
    """There is no Vulkan driver, or no device that can do what is needed."""


class DeviceNotFoundError(NoDeviceError, LookupError):
    """The device that was asked for is not among those found."""


class SettingsError(GpuError, ValueError):
    """A setting or environment variable has a value that means nothing."""


class KernelError(GpuError, ValueError):
    """A kernel's declaration contradicts itself or its code."""


class SpirvError(KernelError):
    """The bytes are not SPIR-V, or not a compute shader this package can run."""


class DeviceLacksError(KernelError):
    """The SPIR-V needs a capability or a limit that the device does not offer."""


class NotRunHereError(GpuError, TypeError):
    """A kernel was called like a function; an executor runs kernels."""


class ArgumentTypeError(GpuError, TypeError):
    """An argument is not a NumPy array, or not of the dtype the kernel takes."""


class ArgumentShapeError(GpuError, ValueError):
    """An argument's shape does not fit the kernel or the other arguments."""


class ElementRangeError(GpuError, ValueError):
    """A field element is not below the modulus; says which argument and the first index."""

    def __init__(self, kernel: str, argument: int, index: int, job: int | None = None) -> None:
        where = "" if job is None else f"job {job}: "
        super().__init__(
            f"{where}{kernel}: element {index} of argument {argument} is not below the modulus; "
            "reduce it first (the elements must be in 0 .. p-1)"
        )
        self.kernel = kernel
        self.argument = argument
        self.index = index
        self.job = job
        """The job of a batch that it was in, None outside batches."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.argument, self.index, self.job)

    def behind(self, elements: int) -> ElementRangeError:
        """The same error of a call that has so many elements before those it was found in."""
        return ElementRangeError(self.kernel, self.argument, self.index + elements, self.job)


class OutOfMemoryError(GpuError, MemoryError):
    """Memory could not be had; names the size, the device and the bytes in use."""


class ClosedError(GpuError, RuntimeError):
    """The backend was closed; open another one."""


class ForkedError(ClosedError):
    """What was opened in the parent process cannot be used in its child; open another one."""


class QueueFullError(GpuError):
    """An executor that raises when too many bytes wait for a device has too many."""


class WrongResultError(GpuError):
    """A result that was checked on the CPU is another; says which output and its first index."""

    def __init__(
        self, kernel: str, output: int, index: int, where: str, job: int | None = None
    ) -> None:
        which = "" if job is None else f"job {job}: "
        super().__init__(
            f"{which}{kernel} on {where}: element {index} of output {output} is not what the CPU "
            "computes; the device is left alone from now on"
        )
        self.kernel = kernel
        self.output = output
        self.index = index
        """Among those that were checked the first."""
        self.where = where
        self.job = job
        """The job of a batch that it was in, None outside batches."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.output, self.index, self.where, self.job)

    def behind(self, elements: int) -> WrongResultError:
        """The same error of a call that has so many elements before those it was found in."""
        index = self.index + elements
        return WrongResultError(self.kernel, self.output, index, self.where, self.job)


class VulkanError(GpuError):
    """A Vulkan call failed; names the call and the result code."""

    def __init__(self, call: str, result: int, meaning: str) -> None:
        super().__init__(f"{call} failed: {meaning} ({result})")
        self.call = call
        self.result = result
        self.meaning = meaning

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.result, self.meaning), {"args": self.args}


class DeviceLostError(VulkanError):
    """The device stopped answering (VK_ERROR_DEVICE_LOST); close the backend and open another."""
