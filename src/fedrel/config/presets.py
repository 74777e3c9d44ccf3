"""Published experiments by name: the TOML files that come with the package."""

from __future__ import annotations

from pathlib import Path

from fedrel.errors import UserError, nearest

_INSTALLED = Path(__file__).parents[1] / "presets"
_IN_SOURCE_TREE = Path(__file__).parents[3] / "presets"


def folder() -> Path:
    """Where the presets are: in the wheel beside the code, in a source tree at its top."""
    return _INSTALLED if _INSTALLED.is_dir() else _IN_SOURCE_TREE


def presets() -> dict[str, str]:
    """Every preset's name and what its first comment says of it."""
    found = {}
    for path in sorted(folder().rglob("*.toml")):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        found[path.relative_to(folder()).with_suffix("").as_posix()] = first.lstrip("# ")
    return found


def config_path(name: str) -> Path:
    """The file of a config that is given as a path, or as a preset's name."""
    path = Path(name)
    if path.is_file():
        return path
    preset = folder() / f"{name.removeprefix('presets/').removesuffix('.toml')}.toml"
    if preset.is_file():
        return preset
    raise UserError(f"no config file and no preset is called {name!r}", hint=nearest(name, presets()))
