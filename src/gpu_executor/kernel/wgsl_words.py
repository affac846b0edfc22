"""How a WGSL text reads its parameter words, as far as that can be proved from the text.

A word is what `param(1u)` returns: 32 bits as a `u32`. Every use of a word is followed to an end
that shows what the text takes the bits for:

- `bitcast<f32>(word)`: a float.
- `f32(word)`, a comparison, an index, a `switch`, an element that is stored in an argument: an
  integer, signed behind `i32()` or `bitcast<i32>()`.

On the way there a word may pass through parentheses, `u32()`, `i32()`, `bitcast` to these, a `let`
and a `var`. Behind `+`, `-`, `*`, `|`, `min`, `max`, `clamp`, as a divisor, or in a `var` that the
text changes, the value is computed: it can still be an integer, but no longer a float. All else is
not followed: functions, vectors, arrays, structs, pointers, `select`, shifts and masks, quotients
of the word, operations with numbers from 2^23 on (bits of floats), names of types, names that are
declared again, indices that are computed.

The whole expression around a word is followed, up to the next bracket, comma or semicolon, instead
of the exact operands of its operators. That is more than what the word reaches, never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Reading = Literal["f32", "i32", "u32", "integer"]
"""What one use takes a word for: "u32" where a negative integer would be read as a large one,
"integer" where only its bits matter."""


class WordUse(NamedTuple):
    """Where one use of a word ends."""

    reading: Reading | None
    """None where the use is not followed to an end."""
    place: str
    """The line of the text, for messages."""
    is_alone: bool = False
    """Whether the word meets no other value there, whose bits could be those of a float."""
    binding: int | None = None
    """The storage buffer that keeps the value, whose dtype decides whether it is an integer."""


class WordUses(NamedTuple):
    """All uses of the words of a text."""

    by_word: dict[int, tuple[WordUse, ...]]
    """By the index that the text gives to `param`; words that it never reads are missing."""
    obstacle: str = ""
    """What keeps the uses of any word from being followed, such as a computed index; or ""."""
    float_bits: str = ""
    """Where the text makes integers that may be the bits of floats from other values; or ""."""


def find_word_uses(code: str) -> WordUses:
    """Return how a text without comments uses the words of its parameters."""
    try:
        return _Reader(code).find_word_uses()
    except _UnreadableError as error:
        return WordUses({}, str(error))


class _UnreadableError(Exception):
    """Something in the text keeps all words from being followed."""


_TOKEN = re.compile(
    r"(?P<name>[^\W\d]\w*)"
    r"|0[xX][\da-fA-F]*\.?[\da-fA-F]*(?:[pP][+-]?\d+)?[iufh]?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[iufh]?"
    r"|<<=|>>=|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||->|\+\+|--|[-+*/%&|^=!<>~.,;:@()\[\]{}]"
)
_SPACE = re.compile(r"\s*")
_GENERIC = re.compile(
    r"array|atomic|binding_array|bitcast|mat[234]x[234]|ptr|texture_\w+|var|vec[234]"
)
_INDEX = re.compile(r"(0[xX][\da-fA-F]+|\d+)[iu]?")
_FLOAT_CAST = re.compile(r"bitcast<(?:f32|f16|vec[234](?:[fh]|<f(?:32|16)>))>")
_ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"}
_COMPUTES = {"+=", "-=", "*=", "|=", "++", "--"}
"""Assignments that keep an integer an integer; the others of `_ASSIGNS` but "=" take it apart."""
_KEYWORDS = {
    "break", "case", "const", "continuing", "default", "else", "for", "if", "let", "loop",
    "override", "return", "switch", "while",
}  # fmt: skip
_LIMITS = _ASSIGNS | _KEYWORDS | {";", ",", ":", "{", "}", "->", "@"}
_APART = {"&", "^", "~", "<<", ">>"}
_ORDERS, _EQUALS = {"<", ">", "<=", ">="}, {"==", "!="}
_ENDS_TERM = {"+", "-", "|", "&&", "||", "!"} | _ORDERS | _EQUALS
_OPERATORS = _APART | _ENDS_TERM | {"*", "/", "%"}
_OWN_NAMES = {
    "arrayLength", "bitcast", "clamp", "f16", "f32", "i32", "max", "min", "param", "params", "u32",
}  # fmt: skip
"""Names that mean what WGSL and the prelude define, unless the text defines them too."""
_SMALLEST_FLOAT = 1 << 23
"""The bits of the smallest normal float32, as an integer."""
_INTEGERS = re.compile(r"[iu]32|array<[iu]32(?:,\w+)?>")


class _State(NamedTuple):
    """What a text made of a word on the way to an expression."""

    computed: bool = False
    signed: bool = False


class _Reader:
    """The tokens of a text, and its brackets."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._tokens: list[str] = []
        self._starts: list[int] = []
        self._split()
        self._pairs: dict[int, int] = {}
        """Of every bracket, the position of the other one."""
        self._around: list[int | None] = []
        """Of every token, the innermost bracket that is open before it."""
        self._match_brackets()
        self._seen: set[tuple[int, int, _State]] = set()
        self._casts: set[int] = set()
        """The conversions of words between integers."""

    def find_word_uses(self) -> WordUses:
        tokens, words = self._tokens, dict[int, tuple[WordUse, ...]]()
        for at, token in enumerate(tokens):
            before = tokens[at - 1] if at else ""
            if token in _OWN_NAMES and before in ("fn", "alias", "struct"):
                raise self._unreadable(at, f"the text defines {token!r} itself")
            if before == "." or token not in ("param", "params"):
                continue
            if token == "params" or self._get(at + 1) != "(":
                raise self._unreadable(at, f"the text uses {token!r} in another way than param(1u)")
            closing = self._pairs[at + 1]
            index = self._evaluate(at + 2, closing)
            if index is None:
                raise self._unreadable(at, "an index of param() is not a number")
            self._seen.clear()
            found = self._follow(at, closing + 1, _State())
            words[index] = (*words.get(index, ()), *dict.fromkeys(found))
        return WordUses(words, float_bits=self._find_float_bits())

    def _find_float_bits(self) -> str:
        for at, token in enumerate(self._tokens):
            makes_bits = token.startswith("bitcast<") and not _FLOAT_CAST.fullmatch(token)
            if (makes_bits and at not in self._casts) or token.startswith("pack"):
                return self._locate(self._starts[at])
        return ""

    # --- tokens ---

    def _split(self) -> None:
        """Split the code into tokens. A name with its template list is one: `bitcast<f32>`."""
        code, at = self._code, _skip_space(self._code, 0)
        while at < len(code):
            found = _TOKEN.match(code, at)
            if found is None:
                raise _UnreadableError(f"{code[at]!r} is not known, {self._locate(at)}")
            end, token = found.end(), found[0]
            if found["name"] and _GENERIC.fullmatch(token):
                opening = _skip_space(code, end)
                if code[opening : opening + 1] == "<":
                    end = self._find_template_end(opening)
                    token = re.sub(r"\s", "", code[at:end])
            self._tokens.append(token)
            self._starts.append(at)
            at = _skip_space(code, end)

    def _find_template_end(self, opening: int) -> int:
        depth = 0
        for at in range(opening, len(self._code)):
            char = self._code[at]
            depth += (char == "<") - (char == ">")
            if not depth:
                return at + 1
            if not (char.isalnum() or char.isspace() or char in "_<>,.+-*/"):
                break
        raise _UnreadableError(f"no '>' is found for a '<', {self._locate(opening)}")

    def _match_brackets(self) -> None:
        opened: list[int] = []
        for at, token in enumerate(self._tokens):
            self._around.append(opened[-1] if opened else None)
            if token in ("(", "[", "{"):
                opened.append(at)
            elif token in (")", "]", "}"):
                if not opened or self._tokens[opened[-1]] + token not in ("()", "[]", "{}"):
                    raise self._unreadable(at, "a bracket has no other one")
                opening = opened.pop()
                self._pairs[opening], self._pairs[at] = at, opening
                self._around[at] = opening
        if opened:
            raise self._unreadable(opened[-1], "a bracket has no other one")

    def _get(self, at: int) -> str:
        return self._tokens[at] if 0 <= at < len(self._tokens) else ""

    def _is_name(self, at: int) -> bool:
        token = self._get(at)
        return re.match(r"[^\W\d]", token) is not None and token not in _KEYWORDS

    def _locate(self, position: int) -> str:
        """Return the line and the statement at a position in the code, as messages quote them."""
        line = self._code.count("\n", 0, position) + 1
        start = max(self._code.rfind(each, 0, position) for each in ";{}") + 1
        ends = (self._code.find(each, position) for each in ";{}")
        end = min((each for each in ends if each >= 0), default=len(self._code))
        statement = " ".join(self._code[start:end].split())
        return f"line {line}: {statement if len(statement) <= 80 else statement[:77] + '...'}"

    def _unreadable(self, at: int, reason: str) -> _UnreadableError:
        return _UnreadableError(f"{reason}, {self._locate(self._starts[at])}")

    def _evaluate(self, start: int, end: int) -> int | None:
        """Return the value of a number, or of a `const` that is one and has a name of its own."""
        token = self._get(start)
        if end != start + 1:
            return None
        if self._is_name(start):
            declared = self._find_declarations(token)
            at = declared[0] if len(declared) == 1 else 0
            equals = at + 1 if self._get(at + 1) == "=" else at + 3  # behind a type
            is_number = self._get(at - 1) == "const" and self._get(equals + 2) == ";"
            token = self._get(equals + 1) if is_number and self._get(equals) == "=" else ""
        number = _INDEX.fullmatch(token)
        return None if number is None else int(number[1], 0)

    def _find_declarations(self, name: str) -> list[int]:
        """Return where anything of this name is declared, members of structs included."""
        return [
            at
            for at, token in enumerate(self._tokens)
            if token == name
            and (self._is_declared(at) or self._get(at + 1) == ":")
            and self._get(at - 1) != "."
        ]

    def _is_declared(self, at: int) -> bool:
        before = self._get(at - 1)
        return before in ("let", "const", "override", "fn", "alias", "struct") or _is_var(before)

    # --- expressions ---

    def _follow(self, start: int, end: int, state: _State) -> Iterator[WordUse]:
        """Yield the ends of the expression of these tokens, which has the value of a word or, if it
        is computed, one that depends on it."""
        if (start, end, state) in self._seen:
            return
        self._seen.add((start, end, state))
        if self._get(end) in (".", "[", "("):
            yield self._give_up(start)
            return
        left, right = self._find_expression(start, end)
        if (left, right) == (start, end):
            yield from self._follow_whole(left, right, state)
            return
        operators = set(self._list_operators(left, right))
        if operators & _APART or self._is_divided(start, end, right) or self._has_bits(left, right):
            yield self._give_up(start)
        elif operators & (_ORDERS | _EQUALS):
            sign_matters = not state.computed and operators <= _ORDERS | {"&&", "||"}
            yield self._end(start, state, sign_matters=sign_matters, is_alone=False)
        else:
            yield from self._follow_whole(left, right, state._replace(computed=True))

    def _find_expression(self, start: int, end: int) -> tuple[int, int]:
        """Return the whole expression around some tokens."""
        while start > 0 and not self._is_limit(start - 1, "(["):
            start = self._pairs.get(start - 1, start - 1)
        while end < len(self._tokens) and not self._is_limit(end, ")]"):
            end = self._pairs.get(end, end) + 1
        return start, end

    def _is_limit(self, at: int, brackets: str) -> bool:
        token = self._tokens[at]
        return token in _LIMITS or token in brackets or _is_var(token)

    def _list_operators(self, start: int, end: int) -> Iterator[str]:
        """Yield the operators of an expression, but not those inside its brackets."""
        while start < end:
            if self._tokens[start] in ("(", "["):
                start = self._pairs[start]
            elif self._tokens[start] in _OPERATORS:
                yield self._tokens[start]
            start += 1

    def _has_bits(self, start: int, end: int) -> bool:
        """Whether an expression has a number that may be the bits of a float."""
        numbers = map(_INDEX.fullmatch, self._tokens[start:end])
        return any(each and int(each[1], 0) >= _SMALLEST_FLOAT for each in numbers)

    def _is_divided(self, start: int, end: int, right: int) -> bool:
        """Whether the expression divides a part of itself. A divisor stays whole."""
        if self._get(start - 1) in ("/", "%"):
            return False
        while end < right and self._tokens[end] not in _ENDS_TERM:
            if self._tokens[end] in ("/", "%"):
                return True
            end = self._pairs.get(end, end) + 1
        return False

    def _follow_whole(self, start: int, end: int, state: _State) -> Iterator[WordUse]:
        """Follow an expression to what encloses it."""
        before, after = self._get(start - 1), self._get(end)
        is_alone = not state.computed
        if before == "[" and after == "]":
            yield self._end(start, state, sign_matters=is_alone, is_alone=is_alone)
        elif before in ("(", ",") and after in (")", ","):
            yield from self._follow_argument(start, end, state)
        elif before == "switch" and after == "{" and not self._has_bits(end, self._pairs[end]):
            yield self._end(start, state, sign_matters=False, is_alone=is_alone)
        elif (before == "=" or before in _COMPUTES) and after in (";", ")"):
            yield from self._follow_assignment(start - 1, state)
        else:
            yield self._give_up(start)

    def _follow_argument(self, start: int, end: int, state: _State) -> Iterator[WordUse]:
        """Follow an expression between parentheses or among the arguments of a call."""
        opening = self._around[start]
        if opening is None or self._tokens[opening] != "(":
            yield self._give_up(start)
            return
        closing = self._pairs[opening] + 1
        is_only = opening == start - 1 and closing == end + 1
        callee = self._get(opening - 1) if self._is_name(opening - 1) else ""
        if callee in ("min", "max", "clamp"):
            yield from self._follow(opening - 1, closing, state._replace(computed=True))
        elif not is_only:
            yield self._give_up(start)
        elif not callee:
            yield from self._follow(opening, closing, state)
        elif callee in ("u32", "bitcast<u32>", "i32", "bitcast<i32>"):
            self._casts.add(opening - 1)
            signed = state.signed or "i32" in callee
            yield from self._follow(opening - 1, closing, state._replace(signed=signed))
        elif callee == "bitcast<f32>" and not state.computed:
            yield WordUse("f32", self._locate(self._starts[start]), is_alone=True)
        elif callee in ("f32", "f16"):
            is_alone = not state.computed
            yield self._end(start, state, sign_matters=is_alone, is_alone=is_alone)
        else:
            yield self._give_up(start)

    def _end(self, at: int, state: _State, *, sign_matters: bool, is_alone: bool) -> WordUse:
        place = self._locate(self._starts[at])
        if state.signed:
            return WordUse("i32", place, is_alone)
        return WordUse("u32" if sign_matters else "integer", place, is_alone)

    def _give_up(self, at: int) -> WordUse:
        return WordUse(None, self._locate(self._starts[at]))

    # --- names ---

    def _follow_assignment(self, operator: int, state: _State) -> Iterator[WordUse]:
        """Follow an expression into the name that a statement declares or assigns to."""
        start = operator
        while start > 0 and self._tokens[start - 1] not in (";", "{", "}", "(", "["):
            start = self._pairs.get(start - 1, start - 1)
        if self._tokens[start] == "let" or _is_var(self._tokens[start]):
            yield from self._follow_local(start + 1, state)
            return
        local = self._find_local_variable(start)
        if local is not None and operator == start + 1:
            yield from self._follow_local(local, state._replace(computed=True))
        elif local is None and self._find_stored_end(start) == operator:
            yield from self._follow_buffer(start, state)
        else:
            yield self._give_up(start)

    def _find_local_variable(self, at: int) -> int | None:
        """Return the declaration of the local variable that the name at this position means."""
        found = None
        for each in range(at):
            if self._tokens[each] == self._tokens[at] and _is_var(self._get(each - 1)):
                scope = self._find_scope(each)
                if scope is not None and scope[0] <= at < scope[1]:
                    found = each
        return found

    def _find_scope(self, declared: int) -> tuple[int, int] | None:
        """Return the tokens in which a local name is known; None for names of the module."""
        around = self._around[declared]
        if around is None:
            return None
        start, end = declared, self._pairs[around]
        while start < end and self._tokens[start] != ";":
            start = self._pairs.get(start, start) + 1
        if self._tokens[around] == "(":  # of a `for`, whose block follows
            if self._get(end + 1) != "{":
                raise self._unreadable(around, "a declaration has no block")
            end = self._pairs[end + 1]
        return start, end

    def _follow_local(self, declared: int, state: _State) -> Iterator[WordUse]:
        """Follow every use of a local name."""
        name, scope = self._tokens[declared], self._find_scope(declared)
        if scope is None:
            yield self._give_up(declared)
            return
        uses = [
            at for at in range(*scope) if self._tokens[at] == name and self._tokens[at - 1] != "."
        ]
        if any(self._is_declared(at) for at in uses):  # an inner name hides this one
            yield self._give_up(declared)
            return
        assigned = [at for at in uses if self._get(at + 1) in _ASSIGNS]
        if assigned:
            state = state._replace(computed=True)
        for at in uses:
            if at not in assigned:
                yield from self._follow(at, at + 1, state)
            elif self._get(at + 1) not in _COMPUTES | {"="}:
                yield self._give_up(at)

    def _find_stored_end(self, at: int) -> int:
        """Return the token behind a name and the indices that follow it."""
        at += 1
        while self._get(at) == "[":
            at = self._pairs[at] + 1
        return at

    def _follow_buffer(self, stored: int, state: _State) -> Iterator[WordUse]:
        """Follow a value into the storage buffer that a statement assigns to, and from there into
        every other use of the buffer."""
        name = self._tokens[stored]
        declared = self._find_declarations(name)
        binding = self._find_binding(declared[0]) if len(declared) == 1 else None
        if binding is None:
            yield self._give_up(stored)
            return
        place = self._locate(self._starts[stored])
        reading: Reading = "i32" if state.signed else "integer"
        yield WordUse(reading, place, not state.computed, binding)
        for at, token in enumerate(self._tokens):
            if token != name or at == declared[0] or self._get(at - 1) == ".":
                continue
            if self._tokens[at - 3 : at] == ["arrayLength", "(", "&"]:
                continue
            end = self._find_stored_end(at)
            if self._get(end) not in _ASSIGNS:
                yield from self._follow(at, end, _State(computed=True))
            elif self._get(end) not in _COMPUTES | {"="}:
                yield self._give_up(at)

    def _find_binding(self, declared: int) -> int | None:
        """Return the binding of a storage buffer of 32-bit integers; None for other names, and for
        a buffer that may have a second name."""
        is_storage = self._get(declared - 1).startswith("var<storage")
        if not is_storage or not _INTEGERS.fullmatch(self._get(declared + 2)):
            return None
        bindings: dict[int | None, int] = {}
        for at, token in enumerate(self._tokens):
            if _is_var(token) and self._around[at] is None:
                binding = self._read_binding(at)
                if binding in bindings and token.startswith("var<storage"):
                    return None
                bindings[binding] = at
        return next((each for each, at in bindings.items() if at == declared - 1), None)

    def _read_binding(self, variable: int) -> int | None:
        """Return the number of the `@binding` before a variable of the module."""
        at = variable
        while at > 0 and self._tokens[at - 1] not in (";", "{", "}"):
            at -= 1
            if self._tokens[at : at + 3] == ["@", "binding", "("]:
                return self._evaluate(at + 3, self._pairs[at + 2])
        return None


def _skip_space(code: str, at: int) -> int:
    found = _SPACE.match(code, at)
    return at if found is None else found.end()


def _is_var(token: str) -> bool:
    return token == "var" or token.startswith("var<")
