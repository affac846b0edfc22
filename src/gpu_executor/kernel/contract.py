"""What an executor must know of a kernel to run it: its code, its arguments and its declaration.

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
import importlib
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.errors import KernelError, MissingExtraError, NotRunHereError, SpirvError
from gpu_executor.kernel.arguments import Argument, ElementType
from gpu_executor.kernel.declaration import GridRule, Split, identify_params, is_pairs, takes_params
from gpu_executor.kernel.parameters import ParameterLayout, ParameterValues
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.kernel.wgsl_parameters import check_members, make_word_parameters
from gpu_executor.spirv import BlockMember, ShaderInterface, is_read_before_written

Constant = int | float | bool
COUNT_BYTES = 4


@dataclass(frozen=True, eq=False, repr=False)
class KernelContract(ByIdentity):
    """The code of one dispatch and its declaration; immutable and hashable. `Kernel` makes and
    checks it."""

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
        if not isinstance(other, KernelContract):
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
        return _unpickle_kernel, (type(self), packed)

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


def _unpickle_kernel(kind: type[KernelContract], packed: dict[str, Any]) -> KernelContract:
    values = {
        name: pickle.loads(value.pickled) if isinstance(value, _ByValue) else value
        for name, value in packed.items()
    }
    return kind(**values)
