"""Kernel: the code of one dispatch, with everything an executor must know to run it.

The contract between a kernel's code and the executor:

- Storage buffers of descriptor set 0: the inputs at bindings 0, 1, ..., then the outputs, then the
  status word if the kernel declares one.
- Push constants: the number of elements as a `uint32`, then the bytes of `push`, then the `uint32`
  words that `push_of` computes from the inputs' shapes.
- The plan chooses the work-group size if it is a specialization constant in the code
  (`local_size_x_id`). It chooses the number of elements per invocation if `per_invocation` names
  the constant for it.
- A status word is 0xffffffff when a dispatch begins. The kernel lowers it to
  `element * inputs + argument` of the first input element that it cannot accept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError, NotRunHereError, SpirvError
from gpu_executor.spirv import LocalSize, ShaderInterface, read_interface
from gpu_executor.wgsl import PARAMETER_WORDS, WgslCode

Split = Literal["elements", "whole"]
Constant = int | float | bool
Shape = tuple[int, ...]
COUNT_BYTES = 4
NO_INTERFACE = ShaderInterface(
    (0, 0), "", LocalSize((1, 1, 1), (None, None, None)), (), frozenset(), 0, (), frozenset()
)
"""The interface of a kernel without SPIR-V."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one array element: a scalar, or a block of scalars such as six limbs."""

    dtype: np.dtype[Any]
    shape: Shape = ()

    @property
    def nbytes(self) -> int:
        size: int = self.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape) if self.shape else ''}"


@dataclass(frozen=True, eq=False)
class Kernel:
    """The code of one dispatch and its declaration; immutable and hashable.

    Make one with `Kernel.from_spirv` or `Kernel.from_wgsl`, or load one with `kernels.load`.
    """

    name: str
    spirv: bytes = field(repr=False)
    inputs: int
    outputs: int
    split: Split
    types: tuple[ElementType, ...] | None
    out_shape: Callable[..., Any] | None
    constants: tuple[tuple[int, Constant], ...]
    push: bytes
    status: bool
    per_invocation: int | None
    """The id of the specialization constant for the elements per invocation, if there is one."""
    work_group: int | None
    """The fastest work-group size for large calls, if it was measured."""
    reference: Callable[..., Any] | None = field(repr=False)
    interface: ShaderInterface = field(repr=False)
    digest: str = field(repr=False)
    """SHA-256 of the SPIR-V."""
    push_of: Callable[..., Sequence[int]] | None = field(default=None, repr=False)
    """Computes the push words that follow `push` from the inputs' shapes."""
    wgsl: WgslCode | None = field(default=None, repr=False)
    """The same kernel for WebGPU."""
    wgsl_grid: Callable[..., tuple[int, int]] | None = field(default=None, repr=False)
    """Computes the two-dimensional WebGPU grid from the words of `push_of`; without it, the number
    of elements determines the grid."""
    packed: int = 1
    """Elements per vector that an invocation loads; elements left over are processed singly."""

    def __post_init__(self) -> None:
        identity = (
            self.digest, self.name, self.inputs, self.outputs, self.split, self.types,
            self.out_shape, self.encode_constants(), self.push, self.status,
            self.per_invocation, self.work_group, self.reference, self.push_of, self.wgsl,
            self.wgsl_grid, self.packed,
        )  # fmt: skip
        object.__setattr__(self, "_identity", identity)
        # Every call looks its kernel up in dictionaries: compute the hash once.
        object.__setattr__(self, "_hash", hash(identity))

    def __hash__(self) -> int:
        value: int = self.__dict__["_hash"]
        return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Kernel):
            return NotImplemented
        return bool(self.__dict__["_identity"] == other.__dict__["_identity"])

    def __call__(self, *_arrays: Any, out: Any = None) -> Any:
        """Raise `NotRunHereError`: a kernel is callable only to satisfy the type of
        `Executor.submit`.
        """
        raise NotRunHereError(
            f"kernel {self.name!r} cannot be called; run it with an executor: gpu.run(kernel, ...)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes differ between processes, so unpickling calls the constructor, which computes the
        # hash again.
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    def encode_constants(self) -> tuple[tuple[int, bytes], ...]:
        """Return the constants as bytes. Bytes distinguish 0.0 from -0.0, which compare equal as
        numbers.
        """
        encoded = []
        for spec_id, value in self.constants:
            constant = self.interface.constant(spec_id)
            if constant is None:
                known = [each.spec_id for each in self.interface.constants]
                raise KernelError(
                    f"kernel {self.name!r}: constants sets id {spec_id}, but the code has the ids "
                    f"{known}"
                )
            try:
                encoded.append((spec_id, constant.encode(value)))
            except SpirvError as error:
                raise SpirvError(f"kernel {self.name!r}: {error}") from None
        return tuple(encoded)

    def local_size(self) -> tuple[int, int, int]:
        """Return the work-group size with the kernel's constants; a plan may choose another x."""
        local, fixed = self.interface.local_size, dict(self.constants)
        x, y, z = (
            size if spec_id is None else int(fixed.get(spec_id, size))
            for size, spec_id in zip(local.size, local.spec_ids, strict=True)
        )
        return x, y, z

    @property
    def push_bytes(self) -> int:
        """The size of all push constants: the element count, `push` and the words of `push_of`."""
        own = COUNT_BYTES + len(self.push)
        return own if self.push_of is None else max(own, self.interface.push_constant_bytes)

    @property
    def bindings(self) -> int:
        """The number of storage buffers, including the status word."""
        return self.inputs + self.outputs + (1 if self.status else 0)

    @classmethod
    def from_spirv(
        cls,
        code_or_path: bytes | str | Path,
        *,
        inputs: int,
        outputs: int,
        split: Split = "elements",
        dtypes: Sequence[npt.DTypeLike] | None = None,
        out_shape: Callable[..., Any] | None = None,
        constants: Mapping[int, Constant] | None = None,
        push: bytes = b"",
        push_of: Callable[..., Sequence[int]] | None = None,
        status: bool = False,
        per_invocation: int | None = None,
        work_group: int | None = None,
        name: str | None = None,
        reference: Callable[..., Any] | None = None,
        wgsl: WgslCode | None = None,
        wgsl_grid: Callable[..., tuple[int, int]] | None = None,
        packed: int = 1,
    ) -> Kernel:
        """Return a kernel from SPIR-V, given as bytes or as the path of a file.

        `split="elements"` declares that output i depends only on elements i of the inputs, so a
        call may be split into chunks anywhere; calls of "whole" kernels are never split.

        `dtypes` lists the types of the inputs, then of the outputs; a subarray dtype such as
        `("u8", (6,))` makes six integers one element. Without `dtypes`, elements are scalars and an
        output has the type of the first input. `out_shape` computes the outputs' shapes from the
        inputs' shapes, and `push_of` the push words that follow `push`.

        `constants` sets specialization constants by id. `per_invocation` is the id of the constant
        for the number of elements per invocation, and `work_group` a good work-group size for large
        calls. `status=True` declares a status word. `packed` is the number of elements per vector
        that an invocation loads; those left over are processed singly.

        `reference` is the same computation on NumPy arrays, `wgsl` the same kernel for WebGPU, and
        `wgsl_grid` computes its two-dimensional grid from the words of `push_of`.
        """
        code = _read_code(code_or_path)
        interface = read_interface(code)
        kernel = cls(
            name=name or _choose_default_name(code_or_path, code),
            spirv=code,
            inputs=inputs,
            outputs=outputs,
            split=split,
            types=None if dtypes is None else tuple(_parse_dtype(dtype) for dtype in dtypes),
            out_shape=out_shape,
            constants=tuple(sorted((constants or {}).items())),
            push=bytes(memoryview(push)),
            status=status,
            per_invocation=per_invocation,
            work_group=work_group,
            reference=reference,
            interface=interface,
            digest=hashlib.sha256(code).hexdigest(),
            push_of=push_of,
            wgsl=wgsl,
            wgsl_grid=wgsl_grid,
            packed=packed,
        )
        _check_declaration(kernel)
        _check_against_code(kernel)
        return kernel

    @classmethod
    def from_wgsl(
        cls,
        text: str,
        *,
        inputs: int,
        outputs: int,
        split: Split = "elements",
        dtypes: Sequence[npt.DTypeLike],
        out_shape: Callable[..., Any] | None = None,
        data: bytes = b"",
        push_of: Callable[..., Sequence[int]] | None = None,
        status: bool = False,
        work_group: int | None = None,
        grid: Callable[..., tuple[int, int]] | None = None,
        name: str | None = None,
        reference: Callable[..., Any] | None = None,
    ) -> Kernel:
        """Return a kernel from WGSL, for WebGPU only. `wgsl.py` describes the contract of the text.

        `data` are the 32-bit words that follow the number of elements, and `grid` computes the
        two-dimensional grid from the words of `push_of`. The other parameters are as in
        `from_spirv`.
        """
        code = WgslCode(text, bytes(memoryview(data)))
        kernel = cls(
            name=name or f"wgsl-{code.digest[:8]}",
            spirv=b"",
            inputs=inputs,
            outputs=outputs,
            split=split,
            types=tuple(_parse_dtype(dtype) for dtype in dtypes),
            out_shape=out_shape,
            constants=(),
            push=b"",
            status=status,
            per_invocation=None,
            work_group=work_group,
            reference=reference,
            interface=NO_INTERFACE,
            digest="",
            push_of=push_of,
            wgsl=code,
            wgsl_grid=grid,
        )
        _check_declaration(kernel)
        _check_work_group(kernel)
        return kernel


def _read_code(code_or_path: bytes | str | Path) -> bytes:
    if isinstance(code_or_path, str | Path):
        return Path(code_or_path).read_bytes()
    return bytes(code_or_path)


def _choose_default_name(code_or_path: bytes | str | Path, code: bytes) -> str:
    if isinstance(code_or_path, str | Path):
        return Path(code_or_path).stem
    return f"spirv-{hashlib.sha256(code).hexdigest()[:8]}"


def _parse_dtype(dtype: npt.DTypeLike) -> ElementType:
    whole = np.dtype(dtype)
    base, shape = whole.subdtype or (whole, ())
    if base.kind not in "biufc" or 0 in shape:
        raise KernelError(
            f"dtypes has {whole}; an element is a number or a non-empty subarray of numbers"
        )
    return ElementType(to_native(base), tuple(shape))


def to_native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in native byte order: NumPy's singleton, so `is` can compare it."""
    return np.dtype(dtype.type)


def _check_declaration(kernel: Kernel) -> None:
    where = f"kernel {kernel.name!r}"
    if kernel.inputs < 1 or kernel.outputs < 1:
        raise KernelError(
            f"{where} has {kernel.inputs} inputs and {kernel.outputs} outputs; "
            "it needs at least one of each"
        )
    if kernel.split not in ("elements", "whole"):
        raise KernelError(f"{where}: split is {kernel.split!r}; it must be 'elements' or 'whole'")
    if kernel.split == "elements" and kernel.out_shape is not None:
        raise KernelError(
            f"{where} has split='elements', so its outputs have its inputs' shape; drop out_shape "
            "or give split='whole'"
        )
    size = kernel.work_group
    if size is not None and (not isinstance(size, Integral) or size < 1):
        raise KernelError(
            f"{where}: work_group is {size!r}; it must be a whole number of invocations, at least "
            "1, or None"
        )
    if kernel.wgsl is not None and len(kernel.wgsl.data) % 4:
        raise KernelError(
            f"{where}: data has {len(kernel.wgsl.data)} bytes; it must be a multiple of 4"
        )
    if kernel.wgsl is not None and len(kernel.wgsl.data) > 4 * (PARAMETER_WORDS - 1):
        raise KernelError(
            f"{where}: data has {len(kernel.wgsl.data)} bytes; at most "
            f"{4 * (PARAMETER_WORDS - 1)} fit after the number of elements"
        )
    arrays = kernel.inputs + kernel.outputs
    if kernel.types is not None and len(kernel.types) != arrays:
        raise KernelError(
            f"{where}: dtypes lists {len(kernel.types)} types for {kernel.inputs} inputs and "
            f"{kernel.outputs} outputs"
        )


def _check_against_code(kernel: Kernel) -> None:
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    if interface.bindings != tuple(range(kernel.bindings)):
        roles = f"{kernel.inputs} inputs, {kernel.outputs} outputs"
        roles += ", a status word" if kernel.status else ""
        raise KernelError(
            f"{where}: the code has the bindings {list(interface.bindings)}, but {roles} are the "
            f"bindings {list(range(kernel.bindings))}"
        )
    if interface.uniform is not None:
        raise KernelError(
            f"{where}: binding {interface.uniform.binding} is a uniform buffer: only single "
            "storage buffers are supported"
        )
    last = kernel.bindings - 1
    for binding in range(kernel.inputs, kernel.bindings):
        if binding in interface.read_only:
            role = "the status word" if kernel.status and binding == last else "an output"
            raise KernelError(f"{where}: binding {binding}, {role}, is readonly in the code")
    if len(kernel.push) % 4:
        raise KernelError(f"{where}: push has {len(kernel.push)} bytes; it must be a multiple of 4")
    given = COUNT_BYTES + len(kernel.push)
    declared = interface.push_constant_bytes
    # How many words `push_of` returns is only known when it is called with shapes.
    grows = kernel.push_of is not None and declared > given
    if not grows and given != declared and not (declared == 0 and not kernel.push):
        raise KernelError(
            f"{where}: the code declares {declared} bytes of push constants, but the element count "
            f"(4 bytes) and push ({len(kernel.push)} bytes) make {given}"
        )
    _check_per_invocation(kernel)


def _check_work_group(kernel: Kernel) -> None:
    """Check that a WGSL text uses the plan's work-group size, which determines the number of
    work-groups.
    """
    assert kernel.wgsl is not None
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.wgsl.text, flags=re.DOTALL | re.MULTILINE)
    found = re.search(r"@workgroup_size\s*\(([^)]*)\)", text)
    fixed = found is not None and not re.search(r"\bwork_group\b", found[1])
    if fixed and kernel.split == "elements" and kernel.wgsl_grid is None:
        assert found is not None
        raise KernelError(
            f"kernel {kernel.name!r}: the text has {found[0]}; write @workgroup_size(work_group), "
            "or give grid="
        )


def _check_per_invocation(kernel: Kernel) -> None:
    tuned = kernel.per_invocation
    if tuned is None:
        return
    taken = {*dict(kernel.constants), *kernel.interface.local_size.spec_ids}
    free = [
        constant.spec_id
        for constant in kernel.interface.constants
        if constant.spec_id not in taken and constant.kind in ("int", "uint")
    ]
    if tuned not in free:
        raise KernelError(
            f"kernel {kernel.name!r}: per_invocation is constant {tuned}; it must be an integer "
            f"constant that neither constants= nor the work-group size sets: {free}"
        )
