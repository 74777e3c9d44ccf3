"""Where configs come from: `load_config` reads a TOML file, a preset by its name, or a dictionary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from fedrel.config.check import Section, Settings, Tree, apply_settings, check, read_toml
from fedrel.config.plugins import load_files
from fedrel.config.schema import Config
from fedrel.errors import UserError

SUGGESTED = 3  # presets that are named for one that does not exist
_INSTALLED = Path(__file__).parents[1] / "presets"
_IN_SOURCE_TREE = Path(__file__).parents[3] / "presets"

Source = str | Path | Mapping[str, Any] | Config
"""What a config can be read from."""


def load_config(source: Source, settings: Settings = (), plugins: Sequence[str | Path] = ()) -> Config:
    """Read an experiment, import its plug-ins, and check every key; paths in it become absolute.

    `source` is a TOML file, the name of a preset (`fedrel presets` lists them), a dictionary of the same form, or a
    config; `settings` change some of its keys, as `["training.rounds=3"]` or `{"training.rounds": 3}`; `plugins`
    are Python files to import in addition to those that the config names.

    >>> load_config("demo", {"training.rounds": 2}).training.rounds
    2
    """
    tree, folder, origin = _tree(source)
    apply_settings(tree, settings)
    files = [*_plugins(tree, folder, origin), *(Path(file).absolute() for file in plugins)]
    load_files(files)  # before the check: a plug-in may bring a section of its own
    if files:
        tree["plugins"] = list(map(str, files))
    return check(Config, tree, origin).absolute(folder, data_folder(folder))


def data_folder(folder: Path) -> Path:
    """Where paths of data files start from: FEDREL_DATA if that is set, else the config's own folder."""
    return Path(os.environ.get("FEDREL_DATA") or folder).absolute()


def presets_folder() -> Path:
    """Where the presets are: in the wheel beside the code, in a source tree at its top."""
    return _INSTALLED if _INSTALLED.is_dir() else _IN_SOURCE_TREE


def papers_folder() -> Path:
    """Where the files are that say what papers report."""
    return presets_folder() / "papers"


def presets() -> dict[str, str]:
    """Every preset's name and what its first comment says of it."""
    found = {}
    for path in sorted(set(presets_folder().rglob("*.toml")) - set(papers_folder().iterdir())):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        found[path.relative_to(presets_folder()).with_suffix("").as_posix()] = first.lstrip("# ")
    return found


def config_path(name: str) -> Path:
    """The file of a config that is given as a path, or as a preset's name."""
    path = Path(name)
    if path.is_file():
        return path
    preset = presets_folder() / f"{name.removeprefix('presets/').removesuffix('.toml')}.toml"
    if preset.is_file():
        return preset
    raise UserError(f"no config file and no preset is called {name!r}", hint=_nearest_preset(name))


def _nearest_preset(name: str) -> str:
    """The presets whose name, or its last part, is most like a mistyped one; where to find them all if none is."""
    asked = name.removeprefix("presets/").removesuffix(".toml").lower()
    known = list(presets())

    def likeness(preset: str) -> float:
        pairs = [(asked, preset), (Path(asked).name, Path(preset).name)]
        return max(SequenceMatcher(None, *pair).ratio() for pair in pairs)

    close = [
        preset for preset in sorted(known, key=likeness, reverse=True)[:SUGGESTED] if likeness(preset) > 0.6
    ]
    listed = "`fedrel presets` lists all presets"
    return f"did you mean {' or '.join(map(repr, close))}? {listed}" if close else f"check the path; {listed}"


class _Plugins(Section):
    plugins: list[Path] = []


def _tree(source: Source) -> tuple[Tree, Path, str]:
    """The keys of a config, the folder that its paths start from, and its name for errors."""
    if isinstance(source, Config):
        return source.model_dump(mode="json", exclude_none=True), Path.cwd(), "config"
    if isinstance(source, Mapping):
        return deepcopy(dict(source)), Path.cwd(), "config"
    path = config_path(str(source))
    return read_toml(path, Config), path.parent.absolute(), str(path)


def _plugins(tree: Tree, folder: Path, origin: str) -> list[Path]:
    named = check(_Plugins, {key: value for key, value in tree.items() if key == "plugins"}, origin)
    return [folder / file for file in named.plugins]
