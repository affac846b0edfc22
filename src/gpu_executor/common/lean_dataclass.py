"""`dataclass` for modules that every program imports: the decorator of the standard library, but
quick to define.

The standard decorator compiles the text of six methods for each frozen class, which takes 0.8 ms.
Opening a device imports about a hundred such classes. This decorator lets the standard one collect
the fields, which takes a twentieth of that time, and adds the methods itself: `__init__`, `__eq__`
and `__hash__` are compiled when they are first looked up, to the same text; the others are plain
functions. Type checkers see the standard decorator.

`fields`, `replace`, `asdict`, `match`, pickling, inheritance and `FrozenInstanceError` work as with
the standard decorator. It has no `order=`, `unsafe_hash=` and `InitVar`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Method = Any
"""A function that is an attribute of a class."""

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,
        weakref_slot: bool = False,
    ) -> Callable[[type], type]:
        """Make a class a dataclass, with these options of the standard decorator."""

        def decorate(cls: type) -> type:
            if cls.__doc__ is None:  # the standard decorator would parse the signature, in 8 ms
                cls.__doc__ = f"{cls.__name__}({', '.join(vars(cls).get('__annotations__', ()))})"
            # A base that is frozen needs a class that is declared so; then the standard decorator
            # refuses changes and pickles the class.
            declared = frozen and any(
                base.__dataclass_params__.frozen
                for base in cls.__mro__[1:]
                if hasattr(base, "__dataclass_params__")
            )
            made = dataclasses.dataclass(
                init=False,
                repr=False,
                eq=False,
                frozen=declared,
                slots=slots,
                weakref_slot=weakref_slot,
            )(cls)
            options = made.__dataclass_params__
            options.init, options.repr, options.eq, options.frozen = True, repr, eq, frozen
            compiled = {"__init__": _compile_init}
            if eq:
                compiled |= {"__eq__": _compile_eq, "__hash__": _compile_hash}
            methods = {name: _LazyMethod(made, name, make) for name, make in compiled.items()}
            if eq and not frozen:
                methods["__hash__"] = None
            if repr:
                methods["__repr__"] = _make_text
            if frozen and not declared:
                methods |= _make_refusals(made)
                if slots:
                    methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
            own = {name for name, value in vars(cls).items() if name != "__hash__" or value}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
                elif name == "__setattr__":
                    raise TypeError(f"{cls.__name__} is frozen, so it cannot have its own {name}")
            return made

        return decorate


class _LazyMethod:
    """A method of a dataclass. The first look-up compiles it and puts it in its place."""

    def __init__(self, cls: type, name: str, compile_method: Callable[[Any], Method]) -> None:
        self._cls, self._name, self._compile = cls, name, compile_method

    def __get__(self, instance: Any, owner: type) -> Any:
        method = self._compile(self._cls)
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        method.__module__ = self._cls.__module__
        setattr(self._cls, self._name, method)
        return method if instance is None else method.__get__(instance, owner)


class _Factory:
    """The default of a parameter whose field has a `default_factory`."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compile_init(cls: Any) -> Method:
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    positional: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    frozen = cls.__dataclass_params__.frozen
    for field in dataclasses.fields(cls):
        name = field.name
        value, default = name, ""
        if field.default_factory is not MISSING:
            names[f"_make_{name}"] = field.default_factory
            value, default = f"_make_{name}()", "=_factory"
            if field.init:
                value = f"{value} if {name} is _factory else {name}"
        elif field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            value, default = name if field.init else f"_default_{name}", f"=_default_{name}"
        elif not field.init:
            continue  # __post_init__ sets it
        if field.init:
            (keyword if field.kw_only else positional).append(name + default)
        body.append(f"_set(_self, {name!r}, {value})" if frozen else f"_self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    parameters = ", ".join(["_self", *positional, *(["*", *keyword] if keyword else [])])
    return _compile_function(parameters, body or ["pass"], names)


def _compile_eq(cls: Any) -> Method:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    own, others = _list_attributes("self", compared), _list_attributes("other", compared)
    body = [f"if other.__class__ is self.__class__: return {own} == {others}"]
    return _compile_function("self, other", [*body, "return NotImplemented"], {})


def _compile_hash(cls: Any) -> Method:
    hashed = [
        field.name
        for field in dataclasses.fields(cls)
        if (field.compare if field.hash is None else field.hash)
    ]
    return _compile_function("self", [f"return hash({_list_attributes('self', hashed)})"], {})


def _list_attributes(of: str, names: Iterable[str]) -> str:
    """The expression of a tuple of attributes."""
    return f"({''.join(f'{of}.{name},' for name in names)})"


def _compile_function(parameters: str, body: Iterable[str], names: dict[str, Any]) -> Method:
    made: dict[str, Any] = {}
    lines = "\n ".join(body)
    exec(f"def method({parameters}):\n {lines}", names, made)
    method: Method = made["method"]
    return method


def _make_refusals(cls: Any) -> dict[str, Any]:
    """Make the methods that refuse changes of a frozen class. A subclass that is no dataclass may
    have attributes of its own."""
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


@recursive_repr()
def _make_text(self: Any) -> str:
    shown = [
        f"{field.name}={getattr(self, field.name)!r}"
        for field in dataclasses.fields(self)
        if field.repr
    ]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[Any]:
    """What is pickled: slots of a frozen class cannot be set one by one."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
