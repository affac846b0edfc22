"""Kernel: what runs in one dispatch, with everything an executor must know to run it.

The contract between a kernel's code and whoever runs it:

- Storage buffers of descriptor set 0: the inputs at bindings 0, 1, ..., then the outputs, then the
  status word if the kernel declares one.
- Push constants: the number of elements as a `uint32`, followed by the kernel's own `push` bytes
  and, where the kernel has `push_of`, what that makes of the inputs' shapes.
- The work-group size is chosen by the plan where the code leaves it to a specialization constant
  (`local_size_x_id`), and so is the number of elements per invocation where `per_invocation` names
  its constant.
- A status word is 0xffffffff when a dispatch begins; the kernel lowers it to
  `element * inputs + argument` for the first element of an input that it cannot accept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
"""Of a kernel without SPIR-V."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """What one element of an array is: a scalar, or a block of them such as six limbs."""

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
    """One dispatch of GPU code, immutable and hashable: `Kernel.from_spirv`, or loaded by name."""

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
    """The specialization constant that says how many elements an invocation takes, if one does."""
    work_group: int | None
    """The work-group size that its author found best for large calls, if any."""
    reference: Callable[..., Any] | None = field(repr=False)
    interface: ShaderInterface = field(repr=False)
    digest: str = field(repr=False)
    """SHA-256 of the SPIR-V."""
    push_of: Callable[..., Sequence[int]] | None = field(default=None, repr=False)
    """Words that follow `push`, from the inputs' shapes."""
    wgsl: WgslCode | None = field(default=None, repr=False)
    """The same kernel for WebGPU."""
    wgsl_grid: Callable[..., tuple[int, int]] | None = field(default=None, repr=False)
    """Its work-groups in two dimensions from the words of `push_of`; else by elements."""
    neighbours: int = 1
    """How many elements its invocations take at once; those left over they take one by one."""

    def __post_init__(self) -> None:
        identity = (
            self.digest, self.name, self.inputs, self.outputs, self.split, self.types,
            self.out_shape, self.encoded_constants(), self.push, self.status,
            self.per_invocation, self.work_group, self.reference, self.push_of, self.wgsl,
            self.wgsl_grid, self.neighbours,
        )  # fmt: skip
        object.__setattr__(self, "_identity", identity)
        # Kernels are dictionary keys on the path of every call: hash once.
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
        """For the types of `concurrent.futures.Executor` alone, which submits what is callable."""
        raise NotRunHereError(
            f"kernel {self.name!r} does not run by itself; give it to an executor: "
            "gpu.run(kernel, ...)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A hash is good in one process only, so a kernel that travels makes its own anew.
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    def encoded_constants(self) -> tuple[tuple[int, bytes], ...]:
        """The constants as their bytes: 0.0 and -0.0 are equal, but not the same constant."""
        encoded = []
        for spec_id, value in self.constants:
            constant = self.interface.constant(spec_id)
            if constant is None:
                known = [each.spec_id for each in self.interface.constants]
                raise KernelError(
                    f"kernel {self.name!r}: constants sets id {spec_id}, but its code has the ids "
                    f"{known}"
                )
            try:
                encoded.append((spec_id, constant.encode(value)))
            except SpirvError as error:
                raise SpirvError(f"kernel {self.name!r}: {error}") from None
        return tuple(encoded)

    def local_size(self) -> tuple[int, int, int]:
        """The work-group's extents with the kernel's constants; a plan may choose another first."""
        local, fixed = self.interface.local_size, dict(self.constants)
        x, y, z = (
            size if spec_id is None else int(fixed.get(spec_id, size))
            for size, spec_id in zip(local.size, local.spec_ids, strict=True)
        )
        return x, y, z

    @property
    def push_bytes(self) -> int:
        """All push constants: the element count, `push`, and what `push_of` makes."""
        own = COUNT_BYTES + len(self.push)
        return own if self.push_of is None else max(own, self.interface.push_constant_bytes)

    @property
    def bindings(self) -> int:
        """How many storage buffers it binds, the status word among them."""
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
        neighbours: int = 1,
    ) -> Kernel:
        """A kernel from SPIR-V, as bytes or in a file.

        `split="elements"` says that output i follows from inputs i alone, so a call may be cut into
        chunks anywhere; "whole" kernels are never cut. `dtypes` lists the inputs' then the outputs'
        types; a subarray dtype such as `("u8", (6,))` makes six integers one element. Without it
        elements are scalars and an output is like the first input. `out_shape` computes the
        outputs' shapes from the inputs', and `push_of` whole numbers that follow `push`;
        `constants` fixes specialization constants by their id;
        `per_invocation` names the one that says how many elements an invocation takes, and
        `work_group` a good work-group size for large calls; `status=True` declares a status word;
        `reference` is the same computation on NumPy arrays, `wgsl` the same code for WebGPU and
        `wgsl_grid` its work-groups in two dimensions from the words of `push_of`; `neighbours` says
        how many elements an invocation takes at once, all but those left over.
        """
        code = _code(code_or_path)
        interface = read_interface(code)
        kernel = cls(
            name=name or _name(code_or_path, code),
            spirv=code,
            inputs=inputs,
            outputs=outputs,
            split=split,
            types=None if dtypes is None else tuple(_element_type(dtype) for dtype in dtypes),
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
            neighbours=neighbours,
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
        """A kernel from WGSL, for WebGPU alone; `wgsl.py` says what the text finds and must have.

        `data` are the words behind the number of elements, the rest is as for SPIR-V.
        """
        code = WgslCode(text, bytes(memoryview(data)))
        kernel = cls(
            name=name or f"wgsl-{code.digest[:8]}",
            spirv=b"",
            inputs=inputs,
            outputs=outputs,
            split=split,
            types=tuple(_element_type(dtype) for dtype in dtypes),
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


def _code(code_or_path: bytes | str | Path) -> bytes:
    if isinstance(code_or_path, str | Path):
        return Path(code_or_path).read_bytes()
    return bytes(code_or_path)


def _name(code_or_path: bytes | str | Path, code: bytes) -> str:
    if isinstance(code_or_path, str | Path):
        return Path(code_or_path).stem
    return f"spirv-{hashlib.sha256(code).hexdigest()[:8]}"


def _element_type(dtype: npt.DTypeLike) -> ElementType:
    whole = np.dtype(dtype)
    base, shape = whole.subdtype or (whole, ())
    if base.kind not in "biufc" or 0 in shape:
        raise KernelError(f"dtypes has {whole}; a kernel's elements are one number or more")
    return ElementType(native(base), tuple(shape))


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same number type in the machine's byte order: NumPy's own object, so `is` compares it."""
    return np.dtype(dtype.type)


def _check_declaration(kernel: Kernel) -> None:
    where = f"kernel {kernel.name!r}"
    if kernel.inputs < 1 or kernel.outputs < 1:
        raise KernelError(
            f"{where} has {kernel.inputs} inputs and {kernel.outputs} outputs; "
            "it needs one of each at least"
        )
    if kernel.split not in ("elements", "whole"):
        raise KernelError(f"{where}: split is {kernel.split!r}; it is 'elements' or 'whole'")
    if kernel.split == "elements" and kernel.out_shape is not None:
        raise KernelError(
            f"{where} is cut by elements, so its outputs' shapes follow; drop out_shape"
        )
    if kernel.wgsl is not None and len(kernel.wgsl.data) % 4:
        raise KernelError(f"{where}: data has {len(kernel.wgsl.data)} bytes; they come in fours")
    if kernel.wgsl is not None and len(kernel.wgsl.data) > 4 * (PARAMETER_WORDS - 1):
        raise KernelError(
            f"{where}: data has {len(kernel.wgsl.data)} bytes; there is room for "
            f"{4 * (PARAMETER_WORDS - 1)} behind the number of elements"
        )
    arrays = kernel.inputs + kernel.outputs
    if kernel.types is not None and len(kernel.types) != arrays:
        raise KernelError(
            f"{where}: dtypes names {len(kernel.types)} types for {kernel.inputs} inputs and "
            f"{kernel.outputs} outputs"
        )


def _check_against_code(kernel: Kernel) -> None:
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    if interface.bindings != tuple(range(kernel.bindings)):
        roles = f"{kernel.inputs} inputs, {kernel.outputs} outputs"
        roles += ", a status word" if kernel.status else ""
        raise KernelError(
            f"{where}: its code binds {list(interface.bindings)}, but {roles} are bindings "
            f"{list(range(kernel.bindings))}"
        )
    last = kernel.bindings - 1
    for binding in range(kernel.inputs, kernel.bindings):
        if binding in interface.read_only:
            role = "the status word" if kernel.status and binding == last else "an output"
            raise KernelError(f"{where}: binding {binding}, {role}, is read-only in its code")
    if len(kernel.push) % 4:
        raise KernelError(f"{where}: push has {len(kernel.push)} bytes; they come in fours")
    given = COUNT_BYTES + len(kernel.push)
    declared = interface.push_constant_bytes
    # How much `push_of` adds is seen when there are shapes.
    grows = kernel.push_of is not None and declared > given
    if not grows and given != declared and not (declared == 0 and not kernel.push):
        raise KernelError(
            f"{where}: its code declares {declared} bytes of push constants, but the element count "
            f"(4 bytes) and push ({len(kernel.push)} bytes) make {given}"
        )
    _check_per_invocation(kernel)


def _check_work_group(kernel: Kernel) -> None:
    """Work-groups are counted by the size that was chosen for them, so a text must take it."""
    assert kernel.wgsl is not None
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.wgsl.text, flags=re.DOTALL | re.MULTILINE)
    found = re.search(r"@workgroup_size\s*\(([^)]*)\)", text)
    own = found is not None and not re.search(r"\bwork_group\b", found[1])
    if own and kernel.split == "elements" and kernel.wgsl_grid is None:
        assert found is not None
        raise KernelError(
            f"kernel {kernel.name!r}: its {found[0]} is its own; write "
            "@workgroup_size(work_group), or say with grid= how many work-groups there are"
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
            f"kernel {kernel.name!r}: per_invocation names constant {tuned}; the whole-number "
            f"constants that are neither fixed nor the work-group's are {free}"
        )
