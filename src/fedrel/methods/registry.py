"""What a method is: its options, the coordinator's half and the site's half, in one class.

The coordinator's half is ordinary code in `round`, which asks sites for things. What a site does when it is
asked is a method marked `at_site`, beside it. The engine decides how the asking travels.

A method holds no state: the coordinator's is in `fed`, a site's in `site`. So one class composes with another
by name: `att+fedprox` is a class that inherits from both, and neither file knows of the other.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fedrel.errors import UserError, nearest
from fedrel.federation.method import Method

if TYPE_CHECKING:
    pass


def methods() -> dict[str, type[Method]]:
    """Every method by name: whatever the modules of `fedrel.methods` define."""
    import fedrel.methods as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found: dict[str, type[Method]] = {}
    pending = [Method]
    while pending:
        part = pending.pop()
        pending += part.__subclasses__()
        if "name" in part.__dict__ and part.name and "+" not in part.name:
            found[part.name] = part
    return dict(sorted(found.items()))


def method(name: str, options: Mapping[str, Mapping[str, Any]]) -> Method:
    """The method of that name, or several composed with `+`, with the options given for each part."""
    known = methods()
    for asked in (*name.split("+"), *options):
        if asked not in known:
            raise UserError(f"no method is called {asked!r}", hint=nearest(asked, known))
    parts = list(dict.fromkeys(known[part] for part in name.split("+")))
    # A part that another is built on adds nothing: `fedavg+one` is `one`.
    bases = [
        part for part in parts if not any(issubclass(other, part) for other in parts if other is not part)
    ]
    composed: type[Method] = bases[0] if len(bases) == 1 else type(name, tuple(bases), {"name": name})
    _check_options(bases)
    given: dict[str, Any] = {}
    for part in parts:
        for option, value in options.get(part.name, {}).items():
            if option not in part.model_fields:
                problem = f"unknown option 'methods.{part.name}.{option}'"
                raise UserError(problem, hint=nearest(option, part.model_fields))
            given[option] = value
    try:
        return composed(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"methods.{name}.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _check_options(parts: Sequence[type[Method]]) -> None:
    """Refuse to compose methods that each have an option of the same name, but mean their own by it."""
    owner: dict[str, type[Method]] = {}
    for part in parts:
        for option in part.model_fields:
            first = owner.setdefault(option, _defining(part, option))
            if _defining(part, option) is not first:
                problem = f"{first.name} and {part.name} cannot be composed: both have an option {option!r}"
                raise UserError(problem, hint="choose one of them")


def _defining(part: type[Method], option: str) -> type[Method]:
    """The class that an option comes from."""
    return next(one for one in reversed(part.__mro__) if option in getattr(one, "model_fields", {}))
