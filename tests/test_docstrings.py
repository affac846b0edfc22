"""Every public function has an `Args` section with a line and a type for each parameter."""

from __future__ import annotations

import functools
import inspect
import pydoc
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import gpu_executor as gx

CONSTRUCTED = (gx.Reference, gx.Settings, gx.Tuning)
"""Dataclasses that users make, with an `Attributes` section; the package makes the others."""
REFUSES = "Raise `NotSupportedError`: "
"""How the docstring of a method begins that only raises."""
SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n|\n)+)", re.MULTILINE)
LINE = re.compile(r"^    (?:\*?(\w+) \([^)]+\)|\*\*(\w+)): \S", re.MULTILINE)
"""`name (type): ...`; keywords that another function takes have no type."""


@dataclass(frozen=True)
class PublicFunction:
    """A function, a method or a constructor that users call."""

    name: str
    module: str
    parameters: list[str]
    docstring: str
    """Its own; that of the class for a constructor."""
    inherited: list[str]
    """The docstrings of the methods that it overrides."""


def list_public() -> Iterator[PublicFunction]:
    """The functions and classes of the package and of its public modules."""
    for name in gx.__all__:
        value = getattr(gx, name)
        if not inspect.ismodule(value):
            yield from describe(name, value)
        elif value is not gx.errors:  # the package makes them
            for inner in value.__all__:
                yield from describe(f"{name}.{inner}", getattr(value, inner))


def describe(name: str, value: Any) -> Iterator[PublicFunction]:
    if not inspect.isclass(value):
        if inspect.isroutine(value):
            yield make_function(name, value, list(inspect.signature(value).parameters))
    elif not issubclass(value, Exception):
        yield from describe_class(name, value)


def describe_class(name: str, cls: type) -> Iterator[PublicFunction]:
    if cls in CONSTRUCTED or not is_dataclass(cls):
        constructor = inspect.getattr_static(cls, "__init__")
        parameters = list(inspect.signature(cls).parameters)
        docstrings = [inspect.cleandoc(each or "") for each in (cls.__doc__, constructor.__doc__)]
        yield PublicFunction(name, cls.__module__, parameters, "\n\n".join(docstrings), [])
    for member in filter(lambda member: not member.startswith("_"), dir(cls)):
        found = inspect.getattr_static(cls, member)
        method = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if isinstance(method, types.FunctionType):
            parameters = list(inspect.signature(method).parameters)
            overridden = [vars(base)[member] for base in cls.__mro__ if member in vars(base)]
            yield make_function(
                f"{name}.{member}",
                method,
                parameters if isinstance(found, staticmethod) else parameters[1:],
                [inspect.cleandoc(each.__doc__ or "") for each in overridden],
            )


def make_function(
    name: str, function: Any, parameters: list[str], inherited: Sequence[str] = ()
) -> PublicFunction:
    docstring = inspect.cleandoc(function.__doc__ or "")
    return PublicFunction(name, function.__module__, parameters, docstring, list(inherited))


def list_documented(docstring: str) -> list[str]:
    """The parameters that the `Args` sections of a docstring describe."""
    sections = SECTION.findall(docstring + "\n")
    return [name or keywords for section in sections for name, keywords in LINE.findall(section)]


@functools.cache
def list_covered() -> list[PublicFunction]:
    return [each for each in list_public() if each.module.startswith("gpu_executor.")]


def test_the_walk_finds_functions_methods_and_constructors() -> None:
    assert {each.name for each in list_covered()} >= {
        *("GpuExecutor", "GpuExecutor.run", "GpuExecutor.map", "Kernel.from_spirv", "open_backend"),
        *("Settings", "Tuning", "cluster.RayExecutor", "cluster.start_actors", "kernels.load"),
        *("kzg.load_trusted_setup", "kzg.verify_kzg_proofs", "kzg.TrustedSetup"),
        *("WgpuExecutor.warm_up", "PersistentVulkanBackend.stream", "DeviceArray.reshape", "graph"),
    }


def test_every_parameter_of_a_public_function_has_a_line() -> None:
    missing = []
    for each in list_covered():
        if len(each.parameters) < 2 or each.docstring.startswith(REFUSES):
            continue
        texts = [each.docstring, *each.inherited]
        documented = {name for text in texts for name in list_documented(text)}
        missing += [f"{each.name}: {name}" for name in each.parameters if name not in documented]
    assert not missing, "give these parameters a line in an Args section"


def test_args_sections_have_no_other_parameters() -> None:
    unknown = [
        f"{each.name}: {name}"
        for each in list_covered()
        for name in list_documented(each.docstring)
        if name not in each.parameters
    ]
    assert not unknown, "these lines of Args sections describe no parameter"


def test_help_shows_the_parameters_of_a_method_that_has_no_docstring_of_its_own() -> None:
    for backend in (gx.CpuBackend, gx.WgpuExecutor, gx.PersistentVulkanBackend):
        text = pydoc.plain(pydoc.render_doc(backend.empty))
        assert "shape (int | tuple): The lengths of its axes." in text
