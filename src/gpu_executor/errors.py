"""Every error that this package raises, in one tree.

GpuError
+-- LoaderNotFoundError                no Vulkan loader on this machine
+-- NoDeviceError                      no driver, or no suitable device
|   +-- DeviceNotFoundError            the requested device is not there (also LookupError)
+-- MissingExtraError                  a package of an extra is not installed (also ImportError)
+-- SettingsError                      an invalid setting or variable (also ValueError)
+-- KernelError                        an invalid kernel declaration (also ValueError)
|   +-- SpirvError                     its code is not usable SPIR-V
|   +-- DeviceLacksError               the device lacks what the kernel needs
+-- RemovedNameError                   a name has become another one (also AttributeError)
+-- NotRunHereError                    a kernel called without an executor (also TypeError)
+-- NotSupportedError                  the backend cannot do this; names those that can
+-- ExportError                        an array cannot be exchanged by DLPack (also BufferError)
+-- CudaError                          a call of CUDA's driver library failed
+-- ArgumentTypeError                  an argument of the wrong type or dtype (also TypeError)
+-- ArgumentShapeError                 an argument of the wrong shape (also ValueError)
+-- ArgumentValueError                 an argument of a value that cannot be (also ValueError)
+-- NumberRangeError                   a number beyond a type of arrays (also OverflowError)
+-- ElementIndexError                  an index of elements that are not there (also IndexError)
+-- ElementRangeError                  a field element not below the modulus (also ValueError)
+-- ElementDivisionError               a division by an element that is 0 (also ZeroDivisionError)
+-- NoSquareRootError                  the root of an element that is no square (also ValueError)
+-- CurveError                         parameters that make no curve (also ValueError)
|   +-- PointError                     not a point of the curve or of its group
+-- KzgArgumentError                   an argument of the wrong type or length (also ValueError)
+-- KzgDataError                       not a blob, cell, proof or trusted setup (also RuntimeError)
+-- ProofFileError                     not a key, witness, circuit or proof (also ValueError)
+-- WitnessError                       inputs or values that violate a circuit (also ValueError)
+-- OutOfMemoryError                   device, pool or host is out of memory (also MemoryError)
+-- ClosedError                        the backend or executor is closed (also RuntimeError)
|   +-- ForkedError                    opened before fork(), used in the child
+-- QueueFullError                     more bytes wait than an executor may queue
+-- WrongResultError                   a device's result differs from the CPU's
+-- VulkanError                        a Vulkan call returned an error
    +-- DeviceLostError                the device is lost; open another backend
"""

from __future__ import annotations


class GpuError(Exception):
    """The root of the tree: `except gx.GpuError` catches every error of this package."""


class LoaderNotFoundError(GpuError):
    """The Vulkan loader (libvulkan) is not installed."""


class NoDeviceError(GpuError):
    """There is no driver, or no device that can be used."""


class DeviceNotFoundError(NoDeviceError, LookupError):
    """The requested device is not among the devices that were found."""


class MissingExtraError(GpuError, ImportError):
    """A package that an extra of gpu-executor brings cannot be imported; names the command that
    installs the extra."""

    def __init__(self, needed_by: str, package: str, extra: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"{needed_by} needs {package}, which is not installed{why}: "
            f"{format_install_command(extra)}"
        )
        self.needed_by = needed_by
        self.package = package
        self.extra = extra
        """The name of the extra."""
        self.reason = reason
        """What Python said about the import, or nothing."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.needed_by, self.package, self.extra, self.reason)


def format_install_command(extra: str) -> str:
    """The command that installs an extra, wherever the package itself was installed from: pip finds
    the installed package and adds what the extra lists."""
    return f"pip install 'gpu-executor[{extra}]'"


class SettingsError(GpuError, ValueError):
    """A setting, argument or environment variable has an invalid value."""


class KernelError(GpuError, ValueError):
    """A kernel's declaration contradicts itself or its code."""


class SpirvError(KernelError):
    """The code is not SPIR-V, or not a compute shader that this package can run."""


class DeviceLacksError(KernelError):
    """The kernel or the call needs a capability, or exceeds a limit, of the device."""


class RemovedNameError(GpuError, AttributeError):
    """A name of an earlier version; says the name that has taken its place."""


class NotRunHereError(GpuError, TypeError):
    """A kernel was called like a function; pass it to an executor's `run` instead."""


class NotSupportedError(GpuError):
    """The backend cannot do this by nature; names what was asked and the backends that can."""

    def __init__(self, asked: str, backend: str, able: tuple[str, ...]) -> None:
        super().__init__(
            f"{asked} is not supported by the backend {backend!r}; supported by: {', '.join(able)}"
        )
        self.asked = asked
        self.backend = backend
        self.able = able
        """The names of the backends that can, as `open_backend` takes them."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.asked, self.backend, self.able)


class ExportError(GpuError, BufferError):
    """An array cannot be handed to another library, or taken from one, without a copy through the
    host; says why, and what can be done."""


class CudaError(GpuError):
    """A call of CUDA's driver library failed; names the call and its result."""

    def __init__(self, call: str, result: int, meaning: str) -> None:
        super().__init__(f"{call} failed: {meaning} ({result})")
        self.call = call
        self.result = result
        """The CUresult."""
        self.meaning = meaning

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.result, self.meaning)


class ArgumentTypeError(GpuError, TypeError):
    """An argument is not an array, or does not have the dtype that the kernel takes."""


class ArgumentShapeError(GpuError, ValueError):
    """An argument's shape does not fit the kernel or the other arguments."""


class ArgumentValueError(GpuError, ValueError):
    """An argument has the right type and a value that the call cannot use."""


class NumberRangeError(GpuError, OverflowError):
    """A number is beyond the type of the array that it is computed with or written to."""


class ElementIndexError(GpuError, IndexError):
    """An index of an array of elements or points names none of them."""


class ElementRangeError(GpuError, ValueError):
    """A field element is not below the modulus; names the argument and the first such index."""

    def __init__(self, kernel: str, argument: int, index: int, job: int | None = None) -> None:
        where = "" if job is None else f"job {job}: "
        super().__init__(
            f"{where}{kernel}: element {index} of argument {argument} is not below the modulus; "
            "reduce it first, as field.encode(integers, reduce=True) does (the elements must be in "
            "0 .. p-1)"
        )
        self.kernel = kernel
        self.argument = argument
        self.index = index
        self.job = job
        """The index of the job in its batch, None outside batches."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.argument, self.index, self.job)

    def shift(self, elements: int) -> ElementRangeError:
        """The error for the whole call, where the checked part begins after so many elements."""
        return ElementRangeError(self.kernel, self.argument, self.index + elements, self.job)

    def in_job(self, job: int) -> ElementRangeError:
        """The error for a batch or a stream, of which the call is the job of this index."""
        return ElementRangeError(self.kernel, self.argument, self.index, job)


class ElementDivisionError(GpuError, ZeroDivisionError):
    """A divisor, or an element to invert, is 0; names the field and the first such index."""


class NoSquareRootError(GpuError, ValueError):
    """An element is not a square in its field; names the field and the first such index."""


class CurveError(GpuError, ValueError):
    """The parameters of a curve contradict each other, or are not supported."""


class PointError(CurveError):
    """Bytes or coordinates are not a point of the curve, or not one of its group of prime order;
    names the first such index."""

    def __init__(self, curve: str, index: int, reason: str, advice: str = "") -> None:
        super().__init__(f"{curve}: point {index}: {reason}{advice and '; '}{advice}")
        self.curve = curve
        self.index = index
        """The first bad point, in flat order."""
        self.reason = reason
        self.advice = advice
        """What the caller may do about it, or nothing."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.curve, self.index, self.reason, self.advice)


class KzgArgumentError(GpuError, ValueError):
    """An argument of a KZG function has the wrong type or length; names the argument."""


class KzgDataError(GpuError, RuntimeError):
    """The data of a KZG function are invalid: a field element that is not canonical, bytes that are
    no point of the group, indices of cells, a trusted setup; names the item."""


class ProofFileError(GpuError, ValueError):
    """A file or text is not a usable key, witness, circuit, ceremony or proof of Groth16; names the
    file, and the section and the offset where it has them."""

    def __init__(
        self,
        reason: str,
        path: str | None = None,
        section: int | None = None,
        section_name: str | None = None,
        offset: int | None = None,
    ) -> None:
        named = f" ({section_name})" if section_name else ""
        place = [
            *([] if section is None else [f"section {section}{named}"]),
            *([] if offset is None else [f"byte offset {offset}"]),
        ]
        parts = [*([] if path is None else [path]), *([", ".join(place)] if place else []), reason]
        super().__init__(": ".join(parts))
        self.reason = reason
        self.path = path
        """The file, or None for text."""
        self.section = section
        """The id of the section, or None where no section is to blame."""
        self.section_name = section_name
        self.offset = offset
        """Where in the file the fault is, in bytes from its beginning."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.path, self.section, self.section_name, self.offset)


class WitnessError(GpuError, ValueError):
    """Inputs or a witness do not fit a circuit: names, numbers of values, a failed assertion or a
    violated constraint. It never quotes a secret value."""


class OutOfMemoryError(GpuError, MemoryError):
    """An allocation failed; names the size, the device and the bytes in use."""


class ClosedError(GpuError, RuntimeError):
    """The backend or executor was closed; open another one."""


class ForkedError(ClosedError):
    """It was opened in the parent process and cannot be used in the child; open another one."""


class QueueFullError(GpuError):
    """More bytes than `queued_bytes` would wait for a device, and `when_full` is "raise"."""


class WrongResultError(GpuError):
    """The CPU recomputed a sample of a result and it differs; names the output and the index."""

    def __init__(
        self, kernel: str, output: int, index: int, where: str, job: int | None = None
    ) -> None:
        which = "" if job is None else f"job {job}: "
        super().__init__(
            f"{which}{kernel} on {where}: element {index} of output {output} is not what the CPU "
            "computes; the device is quarantined"
        )
        self.kernel = kernel
        self.output = output
        self.index = index
        """The first wrong element among those that were checked."""
        self.where = where
        self.job = job
        """The index of the job in its batch, None outside batches."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.output, self.index, self.where, self.job)

    def shift(self, elements: int) -> WrongResultError:
        """The error for the whole call, where the checked part begins after so many elements."""
        index = self.index + elements
        return WrongResultError(self.kernel, self.output, index, self.where, self.job)


class VulkanError(GpuError):
    """A Vulkan call failed; names the call and its result code."""

    def __init__(self, call: str, result: int, meaning: str) -> None:
        super().__init__(f"{call} failed: {meaning} ({result})")
        self.call = call
        self.result = result
        self.meaning = meaning

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.result, self.meaning), {"args": self.args}


class DeviceLostError(VulkanError):
    """The device is lost (VK_ERROR_DEVICE_LOST); close the backend and open another one."""
