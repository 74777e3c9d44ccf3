"""The table of what leaks: every method under every defence, each in a file of its own as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.errors import UserError, nearest
from fedrel.leaks.leak_cell import LeakCell, attacked_cell, sees_sums
from fedrel.leaks.leak_defences import DEFENCES, LeakDefence
from fedrel.methods.by_name import method
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.run_notes import environment

SUFFIX = ".leak.json"


def leak_table(
    config: Config,
    out: Path,
    methods: Sequence[str],
    defences: Sequence[str],
    rounds: int,
    say: Callable[[str], None] = lambda _: None,
) -> list[LeakCell]:
    """Attack every cell that is not in the folder yet; returns all that were asked for.

    Run again after it was stopped, it goes on with the first cell that is missing.
    """
    wanted = [(one, DEFENCES[name]) for one in methods for name in _checked(defences, config)]
    configs = [
        _with(config, name, defence, rounds) for name, defence in wanted
    ]  # all are checked before the first
    cells = []
    for number, ((name, defence), chosen) in enumerate(zip(wanted, configs, strict=True), 1):
        file = out / f"{name}.{defence.name}{SUFFIX}"
        about = f"{number} of {len(wanted)}: {name}, {defence.name}"
        if file.exists():
            cell: LeakCell = read_json(LeakCell, file)
            if (cell.config, cell.rounds) != (chosen.digest(), rounds):
                raise UserError("is of another config", file=file, hint="choose another folder")
        else:
            begun = LeakCell(
                method=name,
                defence=defence.name,
                settings=defence.over(chosen),
                config=chosen.digest(),
                rounds=rounds,
                seen="sum" if sees_sums(chosen) else "answers",
                commit=environment("", "").commit,
            )
            say(f"{about}: reading")
            cell = attacked_cell(chosen, begun, defence, partial(_say_about, say, about))
            write_json(file, cell)
        say(f"{about}: {summary(cell)}")
        cells.append(cell)
    return cells


def read_cells(folder: Path) -> list[LeakCell]:
    """All cells in a folder, defences in their order."""
    found: list[LeakCell] = [read_json(LeakCell, file) for file in sorted(folder.glob(f"*{SUFFIX}"))]
    if not found:
        raise UserError(
            "holds no attacked cells", file=folder, hint="run `fedrel leak CONFIG --out` with it first"
        )
    order = {name: place for place, name in enumerate(DEFENCES)}
    return sorted(found, key=lambda cell: (cell.method, order.get(cell.defence, len(order))))


def summary(cell: LeakCell) -> str:
    """A cell in one line."""
    if cell.refused or cell.stopped:
        return f"refused: {cell.refused}" if cell.refused else f"stopped: {cell.stopped}"
    parts = []
    if cell.words:
        parts.append(f"words P {cell.words.precision:.2f} R {cell.words.recall:.2f}")
    if cell.tokens:
        parts.append(f"tokens F1 {cell.tokens.f1:.2f}")
    if cell.membership:
        parts.append(f"membership AUC {cell.membership.auc:.3f}")
    if cell.counts:
        parts.append(f"counts r {cell.counts.beyond_average:.2f}")
    if cell.facts:
        parts.append(f"facts P {cell.facts.precision:.2f} R {cell.facts.recall:.2f}")
    return ", ".join(parts)


def _say_about(say: Callable[[str], None], about: str, line: str) -> None:
    say(f"{about}: {line}")


def _with(config: Config, name: str, defence: LeakDefence, rounds: int) -> Config:
    method(name, config.methods)  # fail for a name that does not exist
    chosen = config.with_settings({"method": name})
    return chosen.with_settings({**defence.over(chosen), "training.rounds": rounds})


def _checked(defences: Sequence[str], config: Config) -> Sequence[str]:
    for name in defences:
        if name not in DEFENCES:
            raise UserError(f"no defence is called {name!r}", hint=nearest(name, DEFENCES))
        if not DEFENCES[name].fits(config):
            raise UserError(
                f"{name} is about extractor.{DEFENCES[name].needs}, which {config.extractor.kind} does not have",
                hint=f"choose among {', '.join(one for one in DEFENCES if DEFENCES[one].fits(config))}",
            )
    return defences


def abouts() -> Mapping[str, str]:
    """What each defence is."""
    return {name: one.about for name, one in DEFENCES.items()}
