"""The quick `dataclass` behaves like the standard one."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from gpu_executor.common import lean_dataclass

OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": text}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for text in (False, True)
]


def define(decorator: Callable[..., Any], **options: bool) -> type[Any]:
    class Point:
        """Fields of every kind."""

        unit: ClassVar[str] = "m"
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        hidden: int = field(default=5, repr=False, compare=False)
        unhashed: Any = field(default=None, hash=False)
        fixed: int = field(default=7, init=False)
        made: list[int] = field(default_factory=lambda: [1], init=False, compare=False)
        total: int = field(init=False, compare=False)
        _: KW_ONLY
        last: int = 9

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    made: type[Any] = decorator(**options)(Point)
    return made


def both(**options: bool) -> tuple[type[Any], type[Any]]:
    lean = define(lean_dataclass.dataclass, **options)
    return lean, define(dataclasses.dataclass, **options)


def read(instance: Any) -> list[Any]:
    return [getattr(instance, each.name) for each in dataclasses.fields(instance)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_instances_are_those_of_the_standard_decorator(options: dict[str, bool]) -> None:
    lean, standard = both(**options)
    for arguments, keywords in (((1,), {}), ((1, 3, ["a"]), {"last": 4}), ((), {"x": 0, "y": 1})):
        made, expected = lean(*arguments, **keywords), standard(*arguments, **keywords)
        assert read(made) == read(expected)
        assert hasattr(made, "__dict__") == hasattr(expected, "__dict__")
        if options["repr"]:
            assert repr(made) == repr(expected)
        assert dataclasses.asdict(made) == dataclasses.asdict(expected)
        changed = dataclasses.replace(made, x=8), dataclasses.replace(expected, x=8)
        assert read(changed[0]) == read(changed[1])
        assert changed[0].x == 8 and changed[0].total == 8 + made.y
    assert lean(1).names is not lean(1).names, "each instance has its own default"
    assert lean.__match_args__ == standard.__match_args__
    assert [*inspect.signature(lean).parameters] == [*inspect.signature(standard).parameters]
    refused: list[tuple[Any, ...]] = [(), (1, 2, [], 3, 4, 5)]
    for wrong in refused:
        with pytest.raises(TypeError, match="argument"):
            lean(*wrong)
        with pytest.raises(TypeError, match="argument"):
            standard(*wrong)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_instances_compare_and_hash_as_with_the_standard_decorator(
    options: dict[str, bool],
) -> None:
    lean, standard = both(**options)
    variants: list[dict[str, Any]] = [
        {"x": 1},
        {"x": 1, "hidden": 6},
        {"x": 2},
        {"x": 1, "last": 3},
    ]
    for one in variants:
        for other in variants:
            assert (lean(**one) == lean(**other)) == (standard(**one) == standard(**other))
    assert lean(1) != standard(1)
    assert (lean(1) == 1) is False
    if options["eq"] and not options["frozen"]:
        for made in (lean(1), standard(1)):
            with pytest.raises(TypeError, match="unhashable"):
                hash(made)
    elif options["eq"]:
        tuples = {"names": ("a",)}  # a list is not hashable
        assert hash(lean(1, **tuples)) == hash(standard(1, **tuples))
        assert hash(lean(1, unhashed=[], **tuples)) == hash(lean(1, unhashed=3, **tuples))
        with pytest.raises(TypeError, match="unhashable"):
            hash(lean(1))


@pytest.mark.parametrize("slots", [False, True])
def test_frozen_instances_refuse_changes(slots: bool) -> None:
    lean, standard = both(frozen=True, slots=slots)
    # With slots, the standard decorator of Python 3.11 raises TypeError for other attributes.
    for cls, names in ((lean, ("x", "another")), (standard, ("x",))):
        made = cls(1)
        for name in names:
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(made, name, 3)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(made, name)
        assert made.x == 1


@lean_dataclass.dataclass(frozen=True, slots=True)
class Base:
    """A base."""

    x: int


@lean_dataclass.dataclass(frozen=True, slots=True)
class Derived(Base):
    """A derived class."""

    y: tuple[int, ...] = ()


class Plain(Base):
    """A subclass that is no dataclass."""


@pytest.mark.parametrize("made", [Base(1), Derived(1, (2,))], ids=["base", "derived"])
def test_frozen_instances_with_slots_are_pickled_and_copied(made: Base) -> None:
    for copied in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert copied == made
        assert type(copied) is type(made)


def test_classes_are_derived() -> None:
    made = Derived(1, (2,))
    assert repr(made) == "Derived(x=1, y=(2,))"
    assert made != Base(1)
    with pytest.raises(FrozenInstanceError):
        made.x = 2  # type: ignore[misc]
    match made:
        case Derived(x, y):
            assert (x, y) == (1, (2,))
    plain: Any = Plain(3)
    plain.own = 4
    assert (plain.x, plain.own) == (3, 4)
    with pytest.raises(FrozenInstanceError):
        plain.x = 5

    @dataclasses.dataclass(frozen=True)
    class Standard(Base):
        z: int = 3

    assert repr(Standard(1)).endswith("Standard(x=1, z=3)")
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        lean_dataclass.dataclass()(type("Thawed", (Base,), {}))


def test_methods_of_the_class_are_kept() -> None:
    @lean_dataclass.dataclass(frozen=True)
    class Own:
        """A class with methods of its own."""

        x: int

        def __init__(self) -> None:
            object.__setattr__(self, "x", 5)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 77

    assert (repr(Own()), hash(Own()), Own() == 3, Own().x) == ("own", 77, True, 5)

    @lean_dataclass.dataclass(frozen=True)
    class OwnEq:  # noqa: PLW1641
        """Python sets __hash__ to None, since it has __eq__."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

    assert hash(OwnEq(1)) == hash((1,))
    with pytest.raises(TypeError, match="cannot have its own __setattr__"):
        lean_dataclass.dataclass(frozen=True)(type("Loose", (), {"__setattr__": setattr}))


def test_a_class_without_docstring_gets_one_that_lists_its_fields() -> None:
    @lean_dataclass.dataclass(slots=True)
    class Undocumented:
        x: int
        y: int = 3

    assert Undocumented.__doc__ == "Undocumented(x, y)"


def test_threads_may_make_the_first_instances_at_once() -> None:
    for _ in range(20):
        lean = define(lean_dataclass.dataclass, frozen=True, slots=True)
        begin = threading.Barrier(4)
        made: list[bool] = []

        def make(cls: type[Any] = lean, wait: Any = begin, into: list[Any] = made) -> None:
            wait.wait()
            into.append(cls(1) == cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [True] * 4
