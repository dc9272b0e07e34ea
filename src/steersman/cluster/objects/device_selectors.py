"""Selectors of DeviceClasses: the part of CEL that classes use, evaluated for a device of a ResourceSlice.

`device.driver`, `device.attributes[DOMAIN].NAME`, `device.capacity[DOMAIN].NAME`, literals, comparisons, `in`, `&&`,
`||`, `!`, `has`, tests of strings, and `quantity` with its comparisons. Whatever else CEL has is not simple.

Source: Kubernetes 1.37, resource.k8s.io/v1 (CELDeviceSelector).
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steersman.core.errors import SteersmanError
from steersman.core.quantities import nano

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<number>-?[0-9]+(?![0-9.eExu]))"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||[=!<>]=|[!<>()\[\],.]))"""
)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}
_QUANTITY_TESTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "compareTo": lambda a, b: (a > b) - (a < b),
    "isGreaterThan": operator.gt,
    "isLessThan": operator.lt,
}

Evaluate = Callable[[Mapping[str, Any]], Any]
"""Returns the value of an expression for the variables; raises EvaluationError as CEL fails at run time."""


class SelectorError(SteersmanError):
    """An expression uses what is not supported."""


class EvaluationError(SteersmanError):
    """An expression has no value, as where a device lacks an attribute."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A quantity of Kubernetes in nano-units."""

    nano: int


class Domains(dict[str, Any]):
    """Attributes by domain; a domain without any is an empty map."""

    def __missing__(self, key: str) -> dict[str, Any]:
        """Return the attributes of an unknown domain."""
        return {}


def compile_selector(expression: str) -> Evaluate:
    """Return a function that evaluates a selector. Raises SelectorError: it uses what is not supported."""
    parser = _Parser(_tokens(expression), expression)
    evaluate = parser.either()
    parser.end()
    return evaluate


def device_variables(
    driver: str, attributes: Mapping[str, Mapping[str, Any]], capacity: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the variables of selectors for a device of a slice. Raises EvaluationError: a capacity is invalid."""
    known, capacities = Domains(), Domains()
    for target, values, value_of in ((known, attributes, _attribute), (capacities, capacity, _capacity)):
        for qualified, value in values.items():
            domain, _, name = qualified.rpartition("/")
            target.setdefault(domain or driver, {})[name] = value_of(value)
    return {"device": {"driver": driver, "attributes": known, "capacity": capacities}}


def _capacity(value: Mapping[str, Any]) -> Quantity:
    try:
        return Quantity(nano(value.get("value", 0)))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind in ("string", "int", "bool"):
        if value.get(kind) is not None:
            return value[kind]
    return value  # a version or a list, which equals no literal; comparisons of these are not supported


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(expression.rstrip()):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise SelectorError(f"{expression!r} has {expression[position:].strip()[:20]!r}, which is not supported")
        tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over tokens; each method returns the evaluation of what it has read."""

    def __init__(self, tokens: list[tuple[str, str]], expression: str) -> None:
        self.tokens, self.position, self.expression = tokens, 0, expression

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", "")

    def take(self, *wanted: str) -> bool:
        kind, token = self.peek()
        if kind in ("sign", "name") and token in wanted:
            self.position += 1
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.unsupported()

    def end(self) -> None:
        if self.peek()[0] != "end":
            raise self.unsupported()

    def unsupported(self) -> SelectorError:
        token = self.peek()[1]
        return SelectorError(f"{self.expression!r} has {token!r}, which is not supported" if token else
                             f"{self.expression!r} ends too early")  # fmt: skip

    def either(self) -> Evaluate:
        terms = [self.both()]
        while self.take("||"):
            terms.append(self.both())
        return terms[0] if len(terms) == 1 else _logic(terms, decides=True)

    def both(self) -> Evaluate:
        terms = [self.relation()]
        while self.take("&&"):
            terms.append(self.relation())
        return terms[0] if len(terms) == 1 else _logic(terms, decides=False)

    def relation(self) -> Evaluate:
        left = self.unary()
        kind, token = self.peek()
        if kind == "sign" and token in _COMPARISONS:
            self.position += 1
            return _comparison(left, _COMPARISONS[token], self.unary())
        if self.take("in"):
            return _member(left, self.unary())
        return left

    def unary(self) -> Evaluate:
        if self.take("!"):
            inner = self.unary()
            return lambda variables: not _boolean(inner(variables))
        return self.postfix(self.primary())

    def primary(self) -> Evaluate:
        kind, token = self.peek()
        self.position += 1
        if kind == "text":
            return _constant(_text(token))
        if kind == "number":
            return _constant(int(token))
        if token in ("true", "false"):
            return _constant(token == "true")
        if token == "(":
            inner = self.either()
            self.expect(")")
            return inner
        if token == "[":
            return self.listing()
        if token == "device":
            return lambda variables: variables["device"]
        if token == "has":
            return self.has()
        if token == "quantity":
            return self.quantity()
        self.position -= 1
        raise self.unsupported()

    def listing(self) -> Evaluate:
        items: list[Evaluate] = []
        while not self.take("]"):
            items.append(self.either())
            if not self.take(","):
                self.expect("]")
                break
        return lambda variables: [item(variables) for item in items]

    def has(self) -> Evaluate:
        self.expect("(")
        inner = self.either()
        self.expect(")")

        def evaluate(variables: Mapping[str, Any]) -> bool:
            try:
                inner(variables)
            except EvaluationError:
                return False
            return True

        return evaluate

    def quantity(self) -> Evaluate:
        self.expect("(")
        kind, token = self.peek()
        self.position += 1
        if kind != "text":
            self.position -= 1
            raise self.unsupported()
        self.expect(")")
        try:
            return _constant(Quantity(nano(_text(token))))
        except ValueError as error:
            raise SelectorError(f"{self.expression!r}: {error}") from None

    def postfix(self, value: Evaluate) -> Evaluate:
        while True:
            if self.take("["):
                value = _index(value, self.either())
                self.expect("]")
            elif self.take("."):
                kind, name = self.peek()
                if kind != "name":
                    raise self.unsupported()
                self.position += 1
                if self.take("("):
                    value = self.call(value, name)
                else:
                    value = _index(value, _constant(name))
            else:
                return value

    def call(self, value: Evaluate, name: str) -> Evaluate:
        tests = {**_TEXT_TESTS, **_QUANTITY_TESTS}
        if name not in tests:
            raise SelectorError(f"{self.expression!r} has {name!r}, which is not supported")
        argument = self.either()
        self.expect(")")
        kind = str if name in _TEXT_TESTS else Quantity

        def evaluate(variables: Mapping[str, Any]) -> Any:
            left, right = value(variables), argument(variables)
            if not isinstance(left, kind) or not isinstance(right, kind):
                raise EvaluationError(f"no such overload: {name}")
            return tests[name](left, right)

        return evaluate


def _text(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(f'"{token[1:-1]}"'))
    except ValueError:
        raise SelectorError(f"{token} has an escape that is not supported") from None


def _constant(value: Any) -> Evaluate:
    return lambda _: value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def _logic(terms: list[Evaluate], *, decides: bool) -> Evaluate:
    """Return a conjunction or disjunction; as in CEL a term that decides outweighs others that fail."""

    def evaluate(variables: Mapping[str, Any]) -> bool:
        failed = None
        for term in terms:
            try:
                if _boolean(term(variables)) is decides:
                    return decides
            except EvaluationError as error:
                failed = error
        if failed is not None:
            raise failed
        return not decides

    return evaluate


def _comparison(left: Evaluate, compare: Callable[[Any, Any], bool], right: Evaluate) -> Evaluate:
    def evaluate(variables: Mapping[str, Any]) -> bool:
        a, b = left(variables), right(variables)
        if type(a) is not type(b):
            raise EvaluationError("no such overload")
        try:
            return compare(a, b)
        except TypeError:
            raise EvaluationError("no such overload") from None

    return evaluate


def _member(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(variables: Mapping[str, Any]) -> bool:
        values = right(variables)
        if not isinstance(values, list | dict):
            raise EvaluationError("no such overload")
        return left(variables) in values

    return evaluate


def _index(value: Evaluate, key: Evaluate) -> Evaluate:
    def evaluate(variables: Mapping[str, Any]) -> Any:
        values, name = value(variables), key(variables)
        if not isinstance(values, dict) or not isinstance(name, str):
            raise EvaluationError("no such overload")
        if name not in values and not isinstance(values, Domains):
            raise EvaluationError(f"no such key: {name}")
        return values[name]

    return evaluate
