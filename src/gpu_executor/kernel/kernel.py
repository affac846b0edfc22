"""Kernel: the code of one dispatch, with everything an executor must know to run it.

The contract between a kernel's code and the executor:

- Storage buffers of descriptor set 0 are the arguments, in binding order. What the code does with a
  buffer makes it an input, an output, or an in-out argument (`kernel/arguments.py`). A scratch
  buffer and a status word may be bound behind the arguments.
- Push constants: the number of elements as a 32-bit integer, if the first member is called `count`
  or `num_elements` or if `count=` says so; the bytes of `push`; the `uint32` words that a function
  of `push` computes from the shapes; then the parameters, which a call sets with `params=`
  (`kernel/parameters.py`). A uniform buffer holds parameters too.
- `grid` is the number of work-groups in x, y and z. Without it there is one invocation per element.
- The plan chooses the work-group size if it is a specialization constant in the code
  (`local_size_x_id`). It chooses the number of elements per invocation if `Tuning` names the
  constant for it.
- Outputs hold the value of `init` when a dispatch begins.
- A status word is 0xffffffff when a dispatch begins. The kernel lowers it to
  `element * inputs + argument` of the first input element that it cannot accept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import pickle
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from numbers import Integral
from pathlib import Path
from typing import Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.errors import (
    ArgumentTypeError,
    KernelError,
    MissingExtraError,
    NotRunHereError,
    SpirvError,
)
from gpu_executor.kernel.arguments import (
    Argument,
    Buffers,
    ElementType,
    Shape,
    make_arguments,
    parse_buffers,
    read_arguments,
    to_native,
)
from gpu_executor.kernel.declaration import (
    Grid,
    GridRule,
    Push,
    Reference,
    Split,
    Tuning,
    check_names,
    encode_init,
    find_count,
    freeze_params,
    freeze_shapes,
    identify_params,
    is_pairs,
    parse_grid_rule,
    parse_push,
    parse_reference,
    parse_tuning,
    refuse_removed,
    takes_params,
)
from gpu_executor.kernel.glsl import compile_glsl
from gpu_executor.kernel.parameters import ParameterLayout, ParameterValues
from gpu_executor.kernel.wgsl import PARAMETER_WORDS, WgslCode
from gpu_executor.kernel.wgsl_parameters import (
    check_members,
    check_param_types,
    make_word_parameters,
)
from gpu_executor.settings import Settings
from gpu_executor.spirv import (
    Access,
    BlockMember,
    LocalSize,
    ShaderInterface,
    is_read_before_written,
    read_interface,
)

__all__ = [
    "COUNT_BYTES",
    "Argument",
    "ElementType",
    "Grid",
    "Kernel",
    "Reference",
    "Shape",
    "Tuning",
    "to_native",
]

Constant = int | float | bool
COUNT_BYTES = 4
NO_INTERFACE = ShaderInterface(
    (0, 0), "", LocalSize((1, 1, 1), (None, None, None)), (), frozenset(), 0, (), frozenset()
)
"""The interface of a kernel without SPIR-V."""


@dataclass(frozen=True, eq=False, repr=False)
class Kernel(ByIdentity):
    """The code of one dispatch and its declaration; immutable and hashable.

    Make one with `Kernel.from_spirv`, `Kernel.from_glsl` or `Kernel.from_wgsl`, or load one with
    `kernels.load`.
    """

    name: str
    spirv: bytes
    arguments: tuple[Argument, ...]
    """In binding order."""
    split: Split
    out_shape: Any
    """The shapes of the pure outputs, or a function that computes them from the shapes of the
    passed arrays."""
    constants: tuple[tuple[int, Constant], ...]
    push: bytes
    status: bool
    per_invocation: int | None
    """The id of the specialization constant for the elements per invocation, if there is one."""
    work_group: int | None
    """The fastest work-group size for large calls, if it was measured."""
    reference: Callable[..., Any] | None
    interface: ShaderInterface
    digest: str
    """SHA-256 of the SPIR-V."""
    push_of: Callable[..., Sequence[int]] | None = None
    """Computes the push words that follow `push` from the shapes of the passed arrays."""
    wgsl: WgslCode | None = None
    """The same kernel for WebGPU."""
    grid: GridRule | None = None
    """The work-groups, or a function that computes them from the shapes of the passed arrays."""
    packed: int = 1
    """Elements per vector that an invocation loads; elements left over are processed singly."""
    init: tuple[bytes | None, ...] = ()
    """For each pure output, the bytes of the element that fills it before a dispatch; None leaves
    its memory as it is."""
    count: BlockMember | None = None
    """The push constant that holds the number of elements, if one does."""
    params: Any = None
    """Default values of the parameters: a tuple, or pairs of a name and a value."""
    reference_at: Callable[..., Any] | None = None
    """Computes single elements of the outputs: `reference_at(indices, *arrays, **params)`."""
    scratch: Callable[..., int] | None = None
    """Computes the number of 32-bit words of the scratch buffer from the shapes."""
    in_place: bool = False
    """Whether the declaration says that an output may be the array of an input."""

    def __post_init__(self) -> None:
        identity = (
            self.digest, self.name, self.arguments, self.split, self.out_shape,
            self.encode_constants(), self.push, self.status, self.per_invocation, self.work_group,
            self.reference, self.push_of, self.wgsl, self.grid, self.packed, self.init, self.count,
            identify_params(self.params), self.reference_at, self.scratch, self.in_place,
        )  # fmt: skip
        object.__setattr__(self, "_identity", identity)
        # Every call looks its kernel up in dictionaries: compute the hash once.
        object.__setattr__(self, "_hash", hash(identity))
        object.__setattr__(self, "inputs", sum(each.is_input for each in self.arguments))
        object.__setattr__(self, "outputs", sum(each.is_output for each in self.arguments))
        object.__setattr__(self, "grid_takes_params", takes_params(self.grid))

    inputs: int = field(init=False)
    """How many arrays a call passes: inputs and in-out arguments."""
    outputs: int = field(init=False)
    """How many arrays a call returns: outputs and in-out arguments."""
    grid_takes_params: bool = field(init=False)
    """Whether `grid` computes the work-groups from the parameters too."""

    def __repr__(self) -> str:
        return f"<Kernel {self.name}: {', '.join(map(str, self.arguments)) or 'no arrays'}>"

    def __hash__(self) -> int:
        value: int = self.__dict__["_hash"]
        return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Kernel):
            return NotImplemented
        return bool(self.__dict__["_identity"] == other.__dict__["_identity"])

    def __call__(self, *_arrays: Any, **_options: Any) -> Any:
        """Raise `NotRunHereError`: a kernel is callable only to satisfy the type of
        `Executor.submit`.
        """
        raise NotRunHereError(
            f"kernel {self.name!r} cannot be called; run it with an executor: gpu.run(kernel, ...)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes differ between processes, so unpickling calls the constructor, which computes the
        # hash again.
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        packed = {name: _pack_function(self.name, name, value) for name, value in values.items()}
        return _unpickle_kernel, (packed,)

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
        """Return the work-group size with the kernel's constants; a plan may choose another x
        where no result depends on it (`is_tuned`).
        """
        local, fixed = self.interface.local_size, dict(self.constants)
        if self.work_group is not None and not self.is_tuned and local.spec_ids[0] is not None:
            fixed.setdefault(local.spec_ids[0], self.work_group)
        x, y, z = (
            size if spec_id is None else int(fixed.get(spec_id, size))
            for size, spec_id in zip(local.size, local.spec_ids, strict=True)
        )
        return x, y, z

    def make_parameters(self, shape_words: bytes) -> ParameterLayout:
        """Return where the parameters lie behind the element count, `push` and `shape_words`."""
        defaults = dict(self.params) if is_pairs(self.params) else self.params
        if self.spirv:
            if self.push_of is not None:
                self.check_wgsl_parameters(shape_words)
            start = self.count_bytes + len(self.push) + len(shape_words)
            return ParameterLayout.of_code(self.name, self.interface, start, self.count, defaults)
        assert self.wgsl is not None
        dtypes = tuple(each.dtype for each in self.types)
        words = make_word_parameters(
            self.name, self.wgsl, len(shape_words), dtypes, may_be_unread=self.grid_takes_params
        )
        return ParameterLayout(self.name, words, 0, 4 * len(words), defaults=defaults)

    def check_wgsl_parameters(self, shape_words: bytes) -> None:
        """Check how the WGSL, if there is any, reads the parameters of the SPIR-V."""
        start = self.count_bytes + len(self.push) + len(shape_words)
        members = self.interface.list_push_parameters(start, self.count)
        if self.interface.uniform is not None:
            members += self.interface.uniform.members
        if self.wgsl is not None and members:
            dtypes = tuple(each.dtype for each in self.types)
            check_members(self.name, self.wgsl, len(shape_words), members, dtypes)

    @functools.cached_property
    def in_place_bindings(self) -> frozenset[int]:
        """The bindings of inputs whose array may be bound to an output too: elements are read
        before they are written, by the declaration or by the code. Initial values are written
        before anything is read."""
        inputs = [argument.binding for argument in self.arguments if argument.is_input]
        outputs = [argument.binding for argument in self.arguments if argument.is_output]
        if self.has_init or not self.spirv:
            return frozenset()
        if self.in_place:
            return frozenset(inputs)
        if self.split != "elements" or len(outputs) != 1:
            return frozenset()
        return frozenset(
            each for each in inputs if is_read_before_written(self.spirv, each, outputs[0])
        )

    @functools.cached_property
    def always_in_place(self) -> bool:
        """Whether the array of any input may be bound to an output too."""
        inputs = {argument.binding for argument in self.arguments if argument.is_input}
        return self.in_place_bindings >= inputs

    def is_count_given(self, params: Any) -> bool:
        """Whether parameters, or the kernel's defaults, give the number of elements by name."""
        if self.count is None or not self.count.name:
            return False
        defaults = dict(self.params) if is_pairs(self.params) else {}
        given = params if isinstance(params, Mapping) else {}
        return self.count.name in defaults or self.count.name in given

    @functools.cached_property
    def count_bytes(self) -> int:
        """The bytes before `push`: those of the number of elements, if the push constants begin
        with it."""
        return COUNT_BYTES if self.count is not None and self.count.offset == 0 else 0

    @property
    def max_count(self) -> int:
        """The largest number of elements that the kernel can count."""
        is_signed = self.count is not None and self.count.dtype.kind == "i"
        return (1 << (31 if is_signed else 32)) - 1

    def compose_push(self, count: int, shape_words: bytes, values: ParameterValues) -> bytes:
        """Return all push constants of a dispatch.

        Args:
            count (int): The number of elements.
            shape_words (bytes): What the function of `push` returned for the shapes of the call.
            values (ParameterValues): The encoded parameters.
        """
        if self.count is None:
            return self.push + shape_words + values.push
        number = values.given_count or struct.pack("<I", count)
        if self.count_bytes:
            return number + self.push + shape_words + values.push
        at, words = self.count.offset, self.push + shape_words + values.push
        return words[:at] + number + words[at + COUNT_BYTES :]

    @functools.cached_property
    def pushes_params(self) -> bool:
        """Whether parameters are push constants at offsets that do not depend on the shapes."""
        return bool(self.spirv) and self.push_of is None and self.make_parameters(b"").has_push

    @functools.cached_property
    def types(self) -> tuple[ElementType, ...]:
        """The element types of the arguments."""
        return tuple(argument.type for argument in self.arguments)

    @functools.cached_property
    def has_init(self) -> bool:
        """Whether any output begins with an initial value."""
        return any(pattern is not None for pattern in self.init)

    @property
    def is_tuned(self) -> bool:
        """Whether the declaration says that no result depends on the work-group size: output i
        depends on inputs i alone, or the plan chooses the elements of an invocation."""
        return self.split == "elements" or self.per_invocation is not None

    @property
    def push_bytes(self) -> int:
        """The size of all push constants."""
        return self.interface.push_constant_bytes

    @property
    def bindings(self) -> int:
        """The number of storage buffers, including the scratch buffer and the status word."""
        return len(self.arguments) + self.hidden_buffers

    @functools.cached_property
    def has_hidden_buffers(self) -> bool:
        """Whether it binds buffers behind its arguments, which the caller does not pass."""
        return self.hidden_buffers > 0 or self.interface.uniform is not None

    @property
    def hidden_buffers(self) -> int:
        """The number of storage buffers behind the arguments: scratch buffer and status word."""
        return (self.scratch is not None) + self.status

    @classmethod
    @refuse_removed
    def from_spirv(
        cls,
        code_or_path: bytes | str | Path,
        *,
        buffers: Buffers | None = None,
        split: Split = "whole",
        out_shape: Any = None,
        init: Any = 0,
        grid: GridRule | None = None,
        work_group: int | None = None,
        params: Mapping[str, Any] | tuple[Any, ...] | None = None,
        count: bool | str | None = None,
        push: Push = b"",
        constants: Mapping[int, Constant] | None = None,
        tuning: Tuning | None = None,
        reference: Callable[..., Any] | Reference | None = None,
        wgsl: str | Kernel | WgslCode | None = None,
        name: str | None = None,
    ) -> Kernel:
        """Return a kernel from SPIR-V. What the code says need not be declared.

        Args:
            code_or_path (bytes | str | Path): The SPIR-V, or the path of its file.
            buffers (str | list): What each storage buffer is, in binding order: an access, "in",
                "out" or "inout"; a dtype of its elements; a pair of both; or None, as the code
                says. `("u8", (6,))` makes six integers one element. A scratch buffer,
                `("scratch", function)`, where the function of the shapes returns its 32-bit words,
                and a status word, "status", are the last. A text has commas: "in u4, out u4".
            split (str): "elements" promises that output i depends only on elements i of the inputs,
                and not on i itself, so a call may be split into chunks anywhere. Calls of "whole"
                kernels are never split.
            out_shape (tuple | list | Callable): The shape of the pure outputs, a list of one per
                output, or a function of the shapes of the passed arrays. None: the shape of the
                first array.
            init (number | list | None): The value that pure outputs hold when a dispatch begins, or
                a list of one per output. None, for kernels that write every element, leaves their
                memory as it is.
            grid (tuple | Callable): The number of work-groups in x, y and z, or a function of the
                shapes, and of `params` if it has a keyword of that name. None: one invocation per
                element.
            work_group (int): The size of a work-group where it is a specialization constant; if no
                result depends on it, a good size for large calls.
            params (dict | tuple): Default values of the parameters, by name or by position.
            count (bool | str): Which push constant every call sets to the number of elements: its
                name, True for the first one, False for none. None: the first one if it is called
                `count` or `num_elements`.
            push (bytes | Callable | tuple): The push constants behind a first one that `count`
                sets: bytes, a function of the shapes that returns 32-bit words, or a pair of both.
                The parameters follow them.
            constants (dict): Values of specialization constants by id.
            tuning (Tuning): What the code offers to make calls faster.
            reference (Callable | Reference): The same computation on NumPy arrays, with parameters
                as keywords; a `Reference` has a function for single elements too.
            wgsl (str | Kernel): The same kernel for WebGPU: a text, or a kernel of `from_wgsl`. The
                text finds the words of `push` behind the number of elements, then the numbers of
                the parameters (`kernel/wgsl.py`).
            name (str): The name in messages and statistics. None: that of the file.

        Raises:
            KernelError: The declaration contradicts itself or the code.
            SpirvError: The code is not valid SPIR-V.
        """
        code = _read_code(code_or_path)
        name = name or _choose_default_name(code_or_path, code)
        where = f"kernel {name!r}"
        try:
            interface = read_interface(code, constants)
        except SpirvError as error:
            raise SpirvError(f"{where}: {error}") from None
        declared = parse_buffers(where, buffers)
        arguments = read_arguments(where, interface, declared)
        pushed, push_of = parse_push(where, push)
        tuned, checked = parse_tuning(where, tuning), parse_reference(where, reference)
        kernel = cls(
            name=name,
            spirv=code,
            arguments=arguments,
            split=split,
            out_shape=freeze_shapes(out_shape),
            constants=tuple(sorted((constants or {}).items())),
            push=pushed,
            status=declared.status,
            per_invocation=tuned.per_invocation,
            work_group=work_group,
            reference=checked.whole,
            interface=interface,
            digest=hashlib.sha256(code).hexdigest(),
            push_of=push_of,
            wgsl=_read_wgsl(where, arguments, wgsl, pushed),
            grid=parse_grid_rule(where, grid),
            packed=tuned.packed,
            init=encode_init(where, arguments, init),
            count=find_count(where, interface, count),
            params=freeze_params(params),
            reference_at=checked.at,
            scratch=declared.scratch,
            in_place=tuned.in_place,
        )
        _check_declaration(kernel)
        _check_against_code(kernel)
        if isinstance(wgsl, Kernel):
            _check_words(kernel, wgsl)
        return kernel

    @classmethod
    @refuse_removed
    def from_glsl(
        cls,
        source_or_path: str | Path,
        *,
        include: Sequence[str | Path] = (),
        defines: Mapping[str, Any] | None = None,
        name: str | None = None,
        **declaration: Any,
    ) -> Kernel:
        """Return a kernel from a GLSL compute shader. `glslc` compiles it once; the result is
        cached by content.

        Args:
            source_or_path (str | Path): The text, or the path of its file.
            include (list): Folders for `#include`.
            defines (dict): Preprocessor macros and their values.
            name (str): The name in messages and statistics. None: that of the file.
            **declaration: The other parameters of `from_spirv`.

        Raises:
            KernelError: The text does not compile, the declaration contradicts it, or there is no
                `glslc`.
        """
        cache_dir = Settings.from_environment().cache_dir
        code, default_name = compile_glsl(
            source_or_path,
            include=include,
            defines=defines or {},
            kernel_name=name,
            cache_dir=cache_dir,
        )
        return cls.from_spirv(code, name=name or default_name, **declaration)

    @classmethod
    @refuse_removed
    def from_wgsl(
        cls,
        text: str,
        *,
        buffers: Buffers,
        split: Split = "whole",
        out_shape: Any = None,
        init: Any = 0,
        grid: GridRule | None = None,
        work_group: int | None = None,
        params: Sequence[str] | Mapping[str, str | None] = (),
        push: Push = b"",
        reference: Callable[..., Any] | Reference | None = None,
        name: str | None = None,
    ) -> Kernel:
        """Return a kernel from WGSL, for WebGPU only; its contract is in `kernel/wgsl.py`.

        Args:
            text (str): The WGSL, without the names of the prelude.
            buffers (str | list): As in `from_spirv`, with an access and a dtype for each argument:
                "in u4, out u4" or `[("in", "u4"), ("out", "u4")]`.
            split (str): As in `from_spirv`.
            out_shape (tuple | list | Callable): As in `from_spirv`.
            init (number | list | None): As in `from_spirv`.
            grid (tuple | Callable): As in `from_spirv`.
            work_group (int): The work-group size where results depend on it. None: 64.
            params (list | dict): The names of the words behind those of `push`, which a call sets.
                A dict has a type for each name, "f32", "i32" or "u32"; None: the text shows it.
            push (bytes | Callable | tuple): The words behind the number of elements: bytes, a
                function of the shapes that returns 32-bit words, or a pair of both.
            reference (Callable | Reference): As in `from_spirv`.
            name (str): The name in messages and statistics.

        Raises:
            KernelError: The declaration contradicts itself or the text.
        """
        where = f"kernel {name or '<wgsl>'!r}"
        check_names(where, params)
        types = check_param_types(where, params if isinstance(params, Mapping) else {})
        data, push_of = parse_push(where, push)
        code = WgslCode(text, data, params=tuple(params), param_types=types)
        name = name or f"wgsl-{code.digest[:8]}"
        where = f"kernel {name!r}"
        declared, checked = parse_buffers(where, buffers), parse_reference(where, reference)
        arguments = make_arguments(where, declared)
        kernel = cls(
            name=name,
            spirv=b"",
            arguments=arguments,
            split=split,
            out_shape=freeze_shapes(out_shape),
            constants=(),
            push=b"",
            status=declared.status,
            per_invocation=None,
            work_group=work_group,
            reference=checked.whole,
            interface=NO_INTERFACE,
            digest="",
            push_of=push_of,
            wgsl=code,
            grid=parse_grid_rule(where, grid),
            init=encode_init(where, arguments, init),
            reference_at=checked.at,
            scratch=declared.scratch,
        )
        _check_declaration(kernel)
        _check_work_group(kernel)
        if push_of is None:  # otherwise a call finds out where the parameters begin
            kernel.make_parameters(b"")
        return kernel


# --- reading the code ---


def _read_code(code_or_path: bytes | str | Path) -> bytes:
    if isinstance(code_or_path, str) and ("\n" in code_or_path or "void main" in code_or_path):
        raise KernelError(
            "code_or_path is a text; SPIR-V is given as bytes or as the path of a file. "
            "Kernel.from_glsl compiles GLSL"
        )
    if isinstance(code_or_path, str | Path):
        try:
            return Path(code_or_path).read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a path with a null character
            raise KernelError(
                f"code_or_path is {str(code_or_path)!r}, a path that cannot be read ({error})"
            ) from error
    try:
        return bytes(memoryview(code_or_path))
    except TypeError:
        raise KernelError(
            f"code_or_path is a {type(code_or_path).__name__}; SPIR-V is given as bytes or as the "
            "path of a file"
        ) from None


def _read_wgsl(
    where: str, arguments: Sequence[Argument], wgsl: object, push: bytes
) -> WgslCode | None:
    """Return the WGSL of a kernel that has SPIR-V too."""
    if wgsl is None or isinstance(wgsl, WgslCode):
        return wgsl
    if isinstance(wgsl, str):
        if "fn main" not in wgsl:
            raise KernelError(f"{where}: wgsl is {wgsl[:40]!r}, which is no WGSL text with fn main")
        return WgslCode(wgsl, push)
    if not isinstance(wgsl, Kernel):
        raise KernelError(
            f"{where}: wgsl is a {type(wgsl).__name__}; it must be a WGSL text or a kernel of "
            "Kernel.from_wgsl"
        )
    if wgsl.wgsl is None:
        raise KernelError(f"{where}: wgsl is kernel {wgsl.name!r}, which has no WGSL")
    taken = [(each.access, each.type) for each in arguments]
    found = [(each.access, each.type) for each in wgsl.arguments]
    if taken != found:
        raise KernelError(
            f"{where}: wgsl is kernel {wgsl.name!r}, whose arguments are "
            f"{_describe_arguments(found)}; those of the SPIR-V are {_describe_arguments(taken)}"
        )
    return wgsl.wgsl


def _describe_arguments(arguments: Sequence[tuple[Access, ElementType]]) -> str:
    return ", ".join(f"{access} {type_}" for access, type_ in arguments) or "none"


def _choose_default_name(code_or_path: bytes | str | Path, code: bytes) -> str:
    if isinstance(code_or_path, str | Path):
        return Path(code_or_path).stem
    return f"spirv-{hashlib.sha256(code).hexdigest()[:8]}"


# --- checks ---


def _check_declaration(kernel: Kernel) -> None:
    where = f"kernel {kernel.name!r}"
    if kernel.outputs < 1 and not kernel.status:
        raise KernelError(
            f"{where} has no output and no in-out argument, so nothing comes back from it"
        )
    if kernel.split not in ("elements", "whole"):
        raise KernelError(f"{where}: split is {kernel.split!r}; it must be 'elements' or 'whole'")
    if kernel.split == "elements":
        _check_splittable(kernel)
    if kernel.wgsl is not None:
        taken = len(kernel.wgsl.data) + 4 * len(kernel.wgsl.params)
        if len(kernel.wgsl.data) % 4:
            raise KernelError(
                f"{where}: push has {len(kernel.wgsl.data)} bytes; it must be a multiple of 4"
            )
        if taken > 4 * (PARAMETER_WORDS - 1):
            raise KernelError(
                f"{where}: push and params have {taken} bytes; at most "
                f"{4 * (PARAMETER_WORDS - 1)} fit after the number of elements"
            )
    size = kernel.work_group
    if size is not None and (not isinstance(size, Integral) or size < 1):
        raise KernelError(
            f"{where}: work_group is {size!r}; it must be a whole number of invocations, at least "
            "1, or None"
        )


def _check_splittable(kernel: Kernel) -> None:
    """Refuse split="elements" where a chunk cannot be computed by itself."""
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    advice = "give split='whole'"
    if kernel.out_shape is not None:
        raise KernelError(
            f"{where} has split='elements', so its outputs have its inputs' shape; drop out_shape "
            f"or {advice}"
        )
    if not kernel.inputs:
        raise KernelError(
            f"{where} has split='elements' and no inputs, so it can only depend on the index of "
            f"an element, which starts anew in each chunk; {advice}"
        )
    if kernel.grid is not None:
        raise KernelError(
            f"{where} has split='elements', so the number of elements determines its work-groups; "
            f"drop grid or {advice}"
        )
    if kernel.scratch is not None:
        raise KernelError(
            f"{where} has split='elements', but all elements would share its scratch buffer; "
            f"{advice}"
        )
    fixed = [argument for argument in kernel.arguments if argument.length is not None]
    if fixed:
        raise KernelError(
            f"{where} has split='elements', but binding {fixed[0].binding} has a fixed length of "
            f"{fixed[0].length}; {advice}"
        )
    shared = "barriers" if interface.has_barriers else "shared memory"
    if interface.has_barriers or interface.has_shared_memory:
        raise KernelError(
            f"{where} has split='elements', but its code has {shared}, so elements depend on "
            f"each other; {advice}"
        )
    bindings = {argument.binding for argument in kernel.arguments}
    for buffer in interface.buffers:
        if buffer.atomics and buffer.binding in bindings:
            raise KernelError(
                f"{where} has split='elements', but its code has atomic operations on binding "
                f"{buffer.binding}; {advice}"
            )


def _check_against_code(kernel: Kernel) -> None:
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    hidden = interface.buffers[len(kernel.arguments) :]
    if len(hidden) != kernel.hidden_buffers:
        raise KernelError(
            f"{where}: the code has the bindings {list(interface.bindings)}; the scratch buffer "
            "and the status word are the last of them"
        )
    if kernel.status and hidden[-1].binding in interface.read_only:
        raise KernelError(
            f"{where}: binding {hidden[-1].binding}, the status word, is readonly in the code"
        )
    if len(kernel.push) % 4:
        raise KernelError(f"{where}: push has {len(kernel.push)} bytes; it must be a multiple of 4")
    given = kernel.count_bytes + len(kernel.push)
    if given > interface.push_constant_bytes:
        raise KernelError(
            f"{where}: the code declares {interface.push_constant_bytes} bytes of push constants, "
            f"but the element count and push ({len(kernel.push)} bytes) make {given}"
        )
    if kernel.push_of is None:  # otherwise a call finds out where the parameters begin
        try:
            kernel.make_parameters(b"")
        except ArgumentTypeError as error:
            raise KernelError(str(error)) from None
        kernel.check_wgsl_parameters(b"")
    _, y, z = kernel.local_size()
    if (y > 1 or z > 1) and kernel.grid is None:
        raise KernelError(
            f"{where} has work-groups of {kernel.local_size()}; say with grid= how many of them a "
            "call has in x, y and z"
        )
    _check_per_invocation(kernel)
    _check_chosen_constants(kernel)


def _check_chosen_constants(kernel: Kernel) -> None:
    """Refuse code whose layout depends on a specialization constant that the plan chooses."""
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    x, *others = interface.local_size.spec_ids
    own = dict(kernel.constants)
    chosen = {kernel.per_invocation}
    if kernel.is_tuned or kernel.work_group is not None:
        chosen.add(x)
    open_ids = chosen - {None} - own.keys()
    for spec_id in sorted(interface.length_ids & open_ids):
        raise KernelError(
            f"{where}: the length of an array in a block depends on specialization constant "
            f"{spec_id}, which is not known when the kernel is made; set it with "
            f"constants={{{spec_id}: ...}}"
        )
    if kernel.is_tuned and x in open_ids and x in others:
        raise KernelError(
            f"{where}: specialization constant {x} is the work-group's size in more than one "
            f"dimension, so the plan cannot choose it; set it with constants={{{x}: ...}}"
        )


def _check_words(kernel: Kernel, wgsl: Kernel) -> None:
    """Check that a kernel and the kernel of its WGSL are declared alike where the text cannot
    tell: words before the parameters, the parameters, the work-groups."""
    where = f"kernel {kernel.name!r}: wgsl is kernel {wgsl.name!r}"
    assert wgsl.wgsl is not None
    if kernel.push_of is None and not wgsl.spirv:
        names, words = kernel.make_parameters(b"").names, list(wgsl.wgsl.params)
        if len(names) != len(words) or (all(names) and names != words):
            raise KernelError(
                f"{where}, whose params are {words}; those of the SPIR-V are {names}. Give the "
                "text itself if a parameter has several words"
            )
    for name in ("split", "status"):
        if getattr(kernel, name) != getattr(wgsl, name):
            raise KernelError(
                f"{where}, whose {name} is {getattr(wgsl, name)!r}; this kernel's is "
                f"{getattr(kernel, name)!r}"
            )


def _check_work_group(kernel: Kernel) -> None:
    """Check that a WGSL text uses the plan's work-group size, which determines the number of
    work-groups.
    """
    assert kernel.wgsl is not None
    found = re.search(r"@workgroup_size\s*\(([^)]*)\)", kernel.wgsl.blank_comments())
    if found is not None and not re.search(r"\bwork_group\b", found[1]) and kernel.grid is None:
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
            f"kernel {kernel.name!r}: per_invocation of tuning is constant {tuned}; it must be an "
            f"integer constant that neither constants= nor the work-group size sets: {free}"
        )


# --- pickling ---


@dataclass(frozen=True, slots=True)
class _ByValue:
    """A function that pickle cannot find by name, as the bytes of cloudpickle."""

    pickled: bytes


def _pack_function(kernel_name: str, field_name: str, value: Any) -> Any:
    if not callable(value):
        return value
    try:
        pickle.dumps(value)
    except Exception:  # lambdas and local functions; pickle raises several kinds
        cloudpickle = _import_cloudpickle()
        if cloudpickle is None:
            raise MissingExtraError(
                f"kernel {kernel_name!r}: its {field_name} is not a function of a module, so "
                "sending the kernel to another process",
                "cloudpickle",
                "pickle",
            ) from None
        return _ByValue(cloudpickle.dumps(value))
    return value


def _import_cloudpickle() -> Any:
    """Return cloudpickle, or the copy that Ray brings; None if neither is installed."""
    for name in ("cloudpickle", "ray.cloudpickle"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _unpickle_kernel(packed: dict[str, Any]) -> Kernel:
    values = {
        name: pickle.loads(value.pickled) if isinstance(value, _ByValue) else value
        for name, value in packed.items()
    }
    return Kernel(**values)
