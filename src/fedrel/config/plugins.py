"""Classes by name: those of the package, of installed packages, and of a user's own file or notebook.

Methods, readers, extractors and partitions are each a class with a `name`. A `Registry` finds all of one kind: the
modules of one of our packages are imported, then what installed packages declare as entry points (`fedrel.methods`
and the like), and every subclass of the base class that is then known counts. So a class in a user's file
(`--plugin file.py`) or notebook needs no registration, and `module:Class` names one that nobody has imported yet.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from fedrel.errors import UserError, nearest


class Named(Protocol):
    """What a registry holds: a class with a name."""

    @property
    def name(self) -> str:
        """What a config calls it."""


Kind = TypeVar("Kind", bound=Named)


class Listed:
    """What a registry's base class inherits from: every class that is defined below it is counted.

    So a registry looks for classes again only when there are new ones.
    """

    __slots__ = ()
    defined: ClassVar[int] = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Listed.defined += 1


class Registry(Generic[Kind]):
    """All classes of one kind by name; `base`, below which they all are, is `Listed`.

    `package` is where ours are: one a module or, with `folders`, one a folder, whose `__init__` then has it;
    `group` is the entry points' group for those of other packages; `what` is the word for one of them in errors.
    """

    def __init__(
        self, base: type[Kind], *, package: str, group: str, what: str, folders: bool = False
    ) -> None:
        self._base, self._package, self._group, self._what = base, package, group, what
        self._folders = folders
        self._found = WeakValueDictionary[str, type[Kind]]()  # a class may still be deleted
        self._as_of = -1, 0  # how many classes were defined when these were found, and how many were found

    def all(self) -> dict[str, type[Kind]]:
        """Every class that has a name of its own, by that name."""
        return dict(self._known().items())

    def _known(self) -> WeakValueDictionary[str, type[Kind]]:
        self.import_all()
        if self._as_of != (Listed.defined, len(self._found)):
            defined, found = Listed.defined, self._look()
            self._found, self._as_of = WeakValueDictionary(found), (defined, len(found))
        return self._found

    def _look(self) -> dict[str, type[Kind]]:
        found: dict[str, type[Kind]] = {}
        for kind in _subclasses(self._base):
            name = kind.__dict__.get("name", "")
            if not name or "+" in name:
                continue
            other = found.get(name)
            if other is not None and other.__module__ != kind.__module__:
                problem = f"two {self._what}s are called {name!r}: {_place(other)} and {_place(kind)}"
                raise UserError(problem, hint="rename one of them, or load only one")
            found[name] = kind  # of two in one module, the last: a notebook's cell that was run again
        return dict(sorted(found.items()))

    def import_all(self) -> None:
        """Import the modules of all of them, once."""
        _import_all(self._package, self._folders)
        _import_installed(self._group)

    def find(self, name: str) -> type[Kind]:
        """The class of that name, or the one that `module:Class` names."""
        if ":" in name:
            return self._imported(name)
        found = self._known().get(name)
        if found is None:
            raise UserError(f"no {self._what} is called {name!r}", hint=nearest(name, self.all()))
        return found

    def _imported(self, reference: str) -> type[Kind]:
        module, _, attribute = reference.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            problem = f"cannot import the {self._what} {reference!r}: {error}"
            raise UserError(
                problem, hint="name it as package.module:Class, and install the package"
            ) from error
        if not (isinstance(found, type) and issubclass(found, self._base)):
            problem = f"{reference!r} is no {self._what}: expected a subclass of {self._base.__name__}"
            raise UserError(problem, hint=f"name a class that inherits from {self._base.__name__}")
        return found


_REGISTRIES = {
    "fedrel.extractors": "fedrel.extractors.registry:EXTRACTORS",
    "fedrel.readers": "fedrel.data.readers:READERS",
    "fedrel.partitions": "fedrel.data.partition:PARTITIONS",
}


def registry(group: str) -> Registry[Any]:
    """The registry of a group, found by name: a config checks the names in it against what is there."""
    module, _, name = _REGISTRIES[group].partition(":")
    found: Registry[Any] = getattr(importlib.import_module(module), name)
    return found


def load_files(files: Sequence[Path]) -> None:
    """Import a user's files, each once: what they define is then found by every registry."""
    for file in files:
        _load_file(file.resolve())


def only_in_this_process(kind: type) -> bool:
    """Whether no other process could import a class, as one of a notebook's cell or of the main script."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or module is None or "<locals>" in kind.__qualname__


@cache
def _load_file(file: Path) -> None:
    name = f"fedrel_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        problem = "cannot load the plug-in: expected a Python file"
        raise UserError(problem, file=file, hint="give the path of a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        problem = f"cannot load the plug-in: {type(error).__name__}: {error}"
        raise UserError(problem, file=file, hint="run the file with Python to see where it fails") from error


@cache
def _import_all(package: str, folders: bool) -> None:
    path = importlib.import_module(package).__path__
    for module in pkgutil.iter_modules(path):
        if module.ispkg or not folders:
            importlib.import_module(f"{package}.{module.name}")


@cache
def _import_installed(group: str) -> None:
    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception as error:
            problem = f"cannot load {entry.value!r}, which an installed package declares for {group}: {error}"
            raise UserError(problem, hint="upgrade or uninstall that package") from error


def _subclasses(base: type[Kind]) -> list[type[Kind]]:
    """All classes below `base`, each once, those defined first, first."""
    found: dict[type[Kind], None] = {}
    pending = [base]
    while pending:
        kind = pending.pop()
        if kind not in found:  # a composed method is below each of its parts
            found[kind] = None
            pending += reversed(kind.__subclasses__())
    return list(found)[1:]


def _place(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
