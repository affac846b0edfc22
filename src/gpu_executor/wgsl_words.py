"""Types of parameter words: how a WGSL text reads the words that `param` returns.

A word is a `u32`. The text makes another type of it with `bitcast<f32>(param(1u))`, directly or
through a name: a `let`, a `var`, the parameter or the result of a function, a vector. The types are
found by following these names through the text, with the scopes of WGSL. An expression that cannot
be followed counts as an integer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Literal

WordType = Literal["f32", "i32", "u32", "integer", "mixed"]
"""What a text reads: "u32" where it converts the word to a float, so that a negative integer would
become a large one; "integer" where any integer of 32 bits is valid; "mixed" for an `f32` that the
text reads as an integer too."""

_PARAM = re.compile(r"\bparam\s*\(")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[iu]?")
_DECLARATION = re.compile(
    r"\b(?:let|var(?:\s*<[^>]*>)?)\s+(\w+)\s*(?::\s*[\w\s<>]+?)?\s*=\s*$", re.ASCII
)
_ASSIGNMENT = re.compile(r"[;{}]\s*(\w+)\s*=\s*$", re.ASCII)
_CALLEE = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<([\w\s<>]*)>)?\s*$", re.ASCII)
_ASSIGNS = re.compile(r"\s*=(?!=)")
_PART = re.compile(r"\s*\.\s*[xyzwrgba]{1,4}\b")
_SAME_VALUE = re.compile(
    r"u32|select|vec[234]u?|vec[234]<u32>|bitcast<(?:u32|vec[234](?:u|<u32>))>"
)
_FLOAT_BITS = re.compile(r"bitcast<(?:f32|vec[234](?:f|<f32>))>")
_SIGNED = re.compile(r"i32|vec[234](?:i|<i32>)|bitcast<(?:i32|vec[234](?:i|<i32>))>")
_FLOAT_VALUE = re.compile(r"f32|f16|vec[234](?:[fh]|<f(?:32|16)>)")


@functools.lru_cache(maxsize=256)
def find_word_types(code: str) -> dict[int | None, WordType]:
    """Return the types of the words that a text without comments reads. The key None is that of
    the words whose indices the text computes; words that it never reads are missing."""
    return _Text(code).find_word_types()


class _Text:
    """A text without comments, and its brackets."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._pairs: dict[int, int] = {}
        """The closing bracket of every opening one, by position."""
        opened: list[int] = []
        for at, char in enumerate(code):
            if char in "([{":
                opened.append(at)
            elif char in ")]}" and opened:
                self._pairs[opened.pop()] = at
        self._seen: set[tuple[int, int]] = set()

    def find_word_types(self) -> dict[int | None, WordType]:
        found: dict[int | None, set[str]] = {}
        for match in _PARAM.finditer(self._code):
            closing = self._pairs.get(match.end() - 1)
            if closing is None:
                continue
            self._seen.clear()
            word = self._evaluate(self._code[match.end() : closing].strip())
            found.setdefault(word, set()).update(self._follow(match.start(), closing + 1))
        return {word: _combine(types) for word, types in found.items() if types}

    def _evaluate(self, index: str) -> int | None:
        """Return the value of a number, or of a `const` that is one."""
        constant = re.search(
            rf"\bconst\s+{re.escape(index)}\s*(?::\s*\w+\s*)?=\s*(\w+)\s*;", self._code
        )
        number = _NUMBER.fullmatch(constant[1] if constant else index)
        return None if number is None else int(number[1], 0)

    def _follow(self, start: int, end: int) -> Iterator[str]:
        """Yield the types as which the text reads the expression at these positions."""
        if (start, end) in self._seen:
            return
        self._seen.add((start, end))
        code = self._code
        part = _PART.match(code, end)
        if part is not None:
            yield from self._follow(start, part.end())
            return
        before, after = code[:start].rstrip()[-1:], code[end:].lstrip()[:1]
        declared = _DECLARATION.search(code, 0, start)
        assigned = _ASSIGNMENT.search(code, 0, start)
        if after == "[" and (closing := self._pairs.get(code.index("[", end))) is not None:
            yield from self._follow(start, closing + 1)
        elif before in ("(", ",") and after in (")", ","):
            yield from self._follow_argument(start, end)
        elif declared is not None and after == ";":
            yield from self._follow_name(declared[1], end, self._find_scope_end(start))
        elif assigned is not None and after == ";":
            yield from self._follow_variable(assigned[1], start)
        elif re.search(r"\breturn$", code[:start].rstrip()) and after == ";":
            yield from self._follow_result(start)
        else:
            yield "integer"

    def _follow_argument(self, start: int, end: int) -> Iterator[str]:
        """Follow an expression between parentheses or among the arguments of a call."""
        opening = self._find_enclosing(start, "([{")
        if opening is None or self._code[opening] != "(":
            yield "integer"
            return
        closing = self._pairs[opening] + 1
        callee = _CALLEE.search(self._code, 0, opening)
        if callee is None:
            yield from self._follow(opening, closing)
            return
        name = re.sub(r"\s", "", callee[0])
        if _SAME_VALUE.fullmatch(name):
            yield from self._follow(callee.start(), closing)
        elif _FLOAT_BITS.fullmatch(name):
            yield "f32"
        elif _SIGNED.fullmatch(name):
            yield "i32"
        elif _FLOAT_VALUE.fullmatch(name):
            yield "u32"
        else:
            yield from self._follow_parameter(name, self._count_arguments(opening, start))

    def _follow_parameter(self, function: str, position: int) -> Iterator[str]:
        """Follow an argument into a function of the text."""
        found = re.search(rf"\bfn\s+{re.escape(function)}\s*\(", self._code)
        closing = None if found is None else self._pairs.get(found.end() - 1)
        if found is None or closing is None:
            yield "integer"
            return
        parameters = _split(self._code[found.end() : closing], "([{<")
        body = self._code.find("{", closing)
        if position >= len(parameters) or body not in self._pairs:
            yield "integer"
            return
        named = re.search(r"(\w+)\s*:", parameters[position])
        if named is None:
            yield "integer"
            return
        yield from self._follow_name(named[1], body, self._pairs[body])

    def _follow_result(self, start: int) -> Iterator[str]:
        """Follow what a function returns into the calls of the function."""
        for function in re.finditer(r"\bfn\s+(\w+)\s*\(", self._code):
            if not function.start() < start < self._find_body_end(function.end() - 1):
                continue
            for call in re.finditer(rf"\b{function[1]}\s*\(", self._code):
                closing = self._pairs.get(call.end() - 1)
                if closing is not None and call.start() != function.start(1):
                    yield from self._follow(call.start(), closing + 1)

    def _follow_variable(self, name: str, at: int) -> Iterator[str]:
        """Follow a variable that a statement at this position assigns to."""
        module = len(self._code)
        scopes = [
            (each.end(), self._find_scope_end(each.start()))
            for each in re.finditer(rf"\bvar(?:\s*<[^>]*>)?\s+{name}\b", self._code)
        ]
        local = [(start, end) for start, end in scopes if start <= at < end != module]
        if local:
            yield from self._follow_name(name, *local[-1])
        elif any(end == module for _, end in scopes):
            yield from self._follow_name(name, 0, module)
        else:
            yield "integer"

    def _follow_name(self, name: str, start: int, end: int) -> Iterator[str]:
        """Follow every use of a name between two positions, except where the declaration of a
        local variable hides it."""
        hidden = range(0)
        for use in re.finditer(rf"(?<!\.)\b{name}\b", self._code[:end]):
            if use.start() < start or use.start() in hidden:
                continue
            before = self._code[: use.start()].rstrip()
            if re.search(r"\b(?:let|const|var(?:\s*<[^>]*>)?)$", before):
                scope_end = self._find_scope_end(use.start())
                if scope_end < len(self._code):  # its initial value is still the outer one's
                    hidden = range(self._code.find(";", use.end()), scope_end)
            elif before[-1:] not in (";", "{", "}") or not _ASSIGNS.match(self._code, use.end()):
                yield from self._follow(use.start(), use.end())

    def _find_scope_end(self, at: int) -> int:
        """Return where the scope of a declaration ends."""
        header = self._find_enclosing(at, "(")
        block = self._find_enclosing(at, "{")
        if header is not None and (block is None or header > block):  # of a `for`
            return self._find_body_end(header)
        return len(self._code) if block is None else self._pairs[block]

    def _find_body_end(self, parentheses: int) -> int:
        """Return the end of the block behind a pair of parentheses."""
        body = self._code.find("{", self._pairs.get(parentheses, len(self._code)))
        return self._pairs.get(body, len(self._code))

    def _find_enclosing(self, at: int, kinds: str) -> int | None:
        """Return the innermost opening bracket of these kinds around a position."""
        return max(
            (
                opening
                for opening, closing in self._pairs.items()
                if opening < at < closing and self._code[opening] in kinds
            ),
            default=None,
        )

    def _count_arguments(self, opening: int, at: int) -> int:
        return len(_split(self._code[opening + 1 : at])) - 1


def _split(text: str, opening: str = "([{") -> list[str]:
    """Split a list, or the beginning of one, at the commas that no bracket encloses."""
    closing = opening.translate(str.maketrans("([{<", ")]}>"))
    parts, depth = [""], 0
    for char in text:
        depth += (char in opening) - (char in closing)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _combine(types: set[str]) -> WordType:
    if "f32" in types:
        return "f32" if types == {"f32"} else "mixed"
    if "u32" in types:
        return "u32"
    return "i32" if types == {"i32"} else "integer"
