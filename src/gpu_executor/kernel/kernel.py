"""Kernel: the code of one dispatch, made from SPIR-V, GLSL or WGSL, with a declaration of what the
code does not say. `kernel/contract.py` has what an executor reads of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_executor.errors import KernelError, SpirvError
from gpu_executor.kernel.arguments import (
    Argument,
    Buffers,
    ElementType,
    make_arguments,
    parse_buffers,
    read_arguments,
)
from gpu_executor.kernel.checks import (
    check_against_code,
    check_declaration,
    check_words,
    check_work_group,
)
from gpu_executor.kernel.contract import Constant, KernelContract
from gpu_executor.kernel.declaration import (
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
    parse_grid_rule,
    parse_push,
    parse_reference,
    parse_tuning,
    refuse_removed,
)
from gpu_executor.kernel.glsl import compile_glsl
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.kernel.wgsl_parameters import check_param_types
from gpu_executor.settings import Settings
from gpu_executor.spirv import Access, LocalSize, ShaderInterface, read_interface

NO_INTERFACE = ShaderInterface(
    (0, 0), "", LocalSize((1, 1, 1), (None, None, None)), (), frozenset(), 0, (), frozenset()
)
"""The interface of a kernel without SPIR-V."""


class Kernel(KernelContract):
    """The code of one dispatch and its declaration; immutable and hashable.

    Make one with `Kernel.from_spirv`, `Kernel.from_glsl` or `Kernel.from_wgsl`, or load one with
    `kernels.load`.
    """

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
        check_declaration(kernel)
        check_against_code(kernel)
        if isinstance(wgsl, Kernel):
            check_words(kernel, wgsl)
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
        check_declaration(kernel)
        check_work_group(kernel)
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
