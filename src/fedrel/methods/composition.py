"""Several methods as one: `att+fedprox` is a class that inherits from both, whatever the order of their names.

A part must be neither ignored nor dependent on the order in which the names are written. So two methods are
refused, with the reason, if both change the same function, unless the function's changes add up (`adds_up`) or
only one order keeps both: a change that calls `super()` then comes before one that does not. They are also
refused if the one's `round` never gets to what the other changes, and if a method itself says that it cannot
work so (`unsuited`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedrel.errors import UserError, nearest
from fedrel.federation.method import Method

# What every part has for itself.
_OWN = {
    "name",
    "paper",
    "reads",
    "carries",
    "unsuited",
    "no_updates",
    "only_mean",
    "single_answers",
    "unprotected",
    "beyond_examples",
}


def method_of(parts: Sequence[type[Method]], options: Mapping[str, Mapping[str, Any]]) -> Method:
    """The composed method of these classes, with the options given for each by its name."""
    kind = composed(parts)
    given = {part: _checked(part, options.get(part.name, {})) for part in parts}
    if kind in given:
        return kind(**_values(kind, given))
    values = {one: _values(one, given) for one in kind.__mro__ if issubclass(one, Method) and one is not kind}
    owners = {
        option: {owner(one, option) for one in values if option in values[one]}
        for option in kind.model_fields
    }
    shared = {
        option: value for own in values.values() for option, value in own.items() if len(owners[option]) == 1
    }
    return kind.with_parts(shared, values)


def composed(parts: Sequence[type[Method]]) -> type[Method]:
    """The class that has all the parts; `UserError` with the reason if they do not go together.

    A part that another is built on adds nothing: `fedavg+one` is `one`.
    """
    needed = {part for part in parts if not any(_builds_on(other, part) for other in parts)}
    return _composed(tuple(sorted(needed, key=lambda part: part.name)))


@cache
def _composed(needed: tuple[type[Method], ...]) -> type[Method]:
    if len(needed) == 1:
        return needed[0]
    for part in needed:
        _check_adds_something(part, needed)
    order = _ordered(needed)
    name = "+".join(part.name for part in order)
    without_source = ConfigDict(use_attribute_docstrings=False)  # which pydantic would look for
    content = {"name": name, "__module__": __name__, "model_config": without_source}
    kind: type[Method] = type(name, tuple(order), content)
    for part in needed:
        _check_is_used(part, kind, needed)
    if reason := kind.unsuited():
        raise _refusal(needed, reason)
    return kind


def owner(part: type[Method], option: str) -> type[Method]:
    """The class that an option comes from: parts that inherit it share it, others each have their own."""
    return next(one for one in reversed(part.__mro__) if option in getattr(one, "model_fields", {}))


def reached(kind: type[Method], start: str = "round", leave_out: Collection[str] = ()) -> set[str]:
    """The names of all functions and attributes of a class that a function may use, itself or by others.

    They are read off the code. A name that only looks the same counts too. What only those in `leave_out` use is
    not counted.
    """
    found, pending = {start}, [start]
    while pending:
        for function in _definitions(kind, pending.pop()):
            used = {name for name in _names(function) if hasattr(kind, name)} - found - {*leave_out}
            found |= used
            pending += used
    return found


# The checks of a composition.


def _ordered(parts: Sequence[type[Method]]) -> list[type[Method]]:
    """The order in which every part has its effect: by name, but what calls `super()` before what does not."""
    before: dict[type[Method], dict[type[Method], None]] = {part: {} for part in parts}  # sets with an order
    for one, other in combinations(parts, 2):
        here, there = _changed(one, other), _changed(other, one)
        for name in sorted(here.keys() & there.keys(), key=lambda name: (name != "round", name)):
            passes_on = [_passes_on(here[name]), _passes_on(there[name])]
            if not any(passes_on):
                problem = f"both define `{name}`, and one of the two would be ignored"
                raise _refusal((one, other), problem)
            if all(passes_on) and not _adds_up(one, name):
                problem = f"both change `{name}`, and the result would depend on their order"
                raise _refusal((one, other), problem)
            if not all(passes_on):
                first, last = (one, other) if passes_on[0] else (other, one)
                before[last][first] = None
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        raise _refusal(parts, "in every order, one of them would ignore another") from None


def _check_adds_something(part: type[Method], parts: Sequence[type[Method]]) -> None:
    others = [other for other in parts if other is not part]
    if all(not _changed(part, other) for other in others):
        rest = "+".join(other.name for other in others)
        base = next(one for one in part.__mro__[1:] if issubclass(one, Method) and "name" in vars(one))
        problem = f"{part.name} trains as {base.name} does, and adds nothing to {rest}"
        raise _refusal(parts, problem, hint=f'write method = "{rest}"')


def _check_is_used(part: type[Method], kind: type[Method], parts: Sequence[type[Method]]) -> None:
    """What a part changes must be in use: called in a round, or asked for by those who run it."""
    used = reached(kind) | set(vars(Method))
    for other in parts:
        base = next(one for one in part.__mro__ if issubclass(other, one))
        for name in sorted(_changed(part, other)):
            if hasattr(base, name) and name not in used:
                problem = f"{other.name} does not use `{name}`, which {part.name} changes"
                raise _refusal((part, other), problem)


def _refusal(parts: Sequence[type[Method]], reason: str, hint: str = "choose one of them") -> UserError:
    names = [part.name for part in parts]
    return UserError(f"{', '.join(names[:-1])} and {names[-1]} cannot be composed: {reason}", hint=hint)


# What a class changes, read off its code.


def _builds_on(other: type[Method], part: type[Method]) -> bool:
    return other is not part and issubclass(other, part)


def _changed(part: type[Method], other: type[Method]) -> dict[str, list[Any]]:
    """What a part defines and another does not have from the same class: by name, in the order of a call."""
    found: dict[str, list[Any]] = {}
    for one in part.__mro__:
        if issubclass(one, Method) and not issubclass(other, one):
            for name, value in vars(one).items():
                if name not in _OWN and not name.startswith("__") and not hasattr(BaseModel, name):
                    found.setdefault(name, []).append(value)
    return found


def _adds_up(part: type[Method], name: str) -> bool:
    """Whether the first class that has a function says that changes of it add up."""
    first = next(vars(one)[name] for one in reversed(part.__mro__) if name in vars(one))
    return getattr(first, "adds_up", False)


def _passes_on(definitions: Sequence[Any]) -> bool:
    """Whether all definitions are functions that call `super()`."""
    return all(isinstance(one, FunctionType) and "super" in _names(one) for one in definitions)


def _definitions(kind: type[Method], name: str) -> Iterator[FunctionType]:
    """The functions of that name that a call runs: the first, and the next as long as they call `super()`."""
    for one in kind.__mro__:
        value = vars(one).get(name)
        function = getattr(
            value, "__func__", getattr(value, "fget", value)
        )  # of a class method or a property
        if isinstance(function, FunctionType):
            yield function
            if "super" not in _names(function):
                return


def _names(function: FunctionType) -> set[str]:
    """All names that a function's code uses, in functions within it too."""
    found: set[str] = set()
    pending: list[CodeType] = [inspect.unwrap(function).__code__]
    while pending:
        code = pending.pop()
        found |= set(code.co_names)
        pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


# Options.


def _checked(part: type[Method], options: Mapping[str, Any]) -> Method:
    """A part with its own options; `UserError` for an unknown one or a wrong value."""
    for option in options:
        if option not in part.model_fields:
            problem = f"unknown option 'methods.{part.name}.{option}'"
            raise UserError(problem, hint=nearest(option, part.model_fields))
    try:
        return part(**options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        problem = f"methods.{part.name}.{key}: {first['msg']}"
        raise UserError(problem, hint=f"`fedrel methods {part.name}` says what its options mean") from error


def _values(kind: type[Method], given: Mapping[type[Method], Method]) -> dict[str, Any]:
    """The options that the code of a class sees."""
    return {option: _value(owner(kind, option), option, given) for option in kind.model_fields}


def _value(belongs_to: type[Method], option: str, given: Mapping[type[Method], Method]) -> Any:
    """The value of an option that parts share: what is given, else a default of their own, else the common one."""
    default = belongs_to.model_fields[option].get_default()
    sharing = {
        part: one
        for part, one in given.items()
        if option in part.model_fields and owner(part, option) is belongs_to
    }
    said = {
        part.name: getattr(one, option) for part, one in sharing.items() if option in one.model_fields_set
    }
    if not said:
        own = {part.name: getattr(one, option) for part, one in sharing.items()}
        said = {name: value for name, value in own.items() if value != default}
    first = next(iter(said.values()), default)
    for name, value in said.items():
        if value != first:
            other = next(iter(said))
            problem = f"methods.{other}.{option} is {first!r}, but methods.{name}.{option} is {value!r}"
            raise UserError(problem, hint=f"composed methods share `{option}`: give it once")
    return first
