"""What lying sites cost, as a table on one config: attacks against defences.

Every cell is trained anew with some of the sites lying, and kept in `attacks.json` as soon as it is done, so that a
table that was stopped goes on where it was. Only then is the cell's run removed. One process at a time works at a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.config.schema import Config
from fedrel.data.bags import Bags
from fedrel.data.store import Progress
from fedrel.errors import UserError, nearest
from fedrel.federation.coordinator import Engine
from fedrel.federation.engines.attacks import ABSENT, ATTACKS, Attack, AttackedEngine
from fedrel.federation.site_data import SiteData
from fedrel.files import locked
from fedrel.methods.by_name import check_cohort, check_protection, method, option_settings
from fedrel.runs.engines import SimulatedSites
from fedrel.runs.folder import read_json, remove_run, write_json
from fedrel.runs.kept_runs import run_id
from fedrel.runs.prepare import Ints, Preparation
from fedrel.runs.records import AttackCell, AttackTable
from fedrel.runs.round_outcome import LostRunError
from fedrel.runs.train import run
from fedrel.seeding import numpy_generator

NONE = "none"  # the attack, and the defence, that is none


@dataclass(frozen=True, slots=True)
class Defence:
    """Settings that make lies cost less."""

    name: str
    about: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the method's options, as far as it has them."""
    agreed_sizes: bool = False
    """Whether each site's size class, the next power of ten, was agreed on."""


def _rule(name: str, about: str) -> Defence:
    return Defence(name, about, {"aggregation.rule": name})


_BOUNDED = {"aggregation.norm_bound": 1.0, "aggregation.share_cap": 2.0}
DEFENCES: Mapping[str, Defence] = {
    one.name: one
    for one in (
        Defence(NONE, "the mean, as it is", {}),
        Defence("norm-bound", "no update longer than twice the median", {"aggregation.norm_bound": 2.0}),
        _rule("median", "the median of each coordinate"),
        _rule("trimmed-mean", "the mean of each coordinate without 20 % at either end"),
        _rule("multi-krum", "the mean of the 80 % that are nearest to each other"),
        _rule("geometric-median", "the point nearest to all updates"),
        _rule("agreeing", "the mean of the updates that go the way that most go"),
        Defence(
            "all",
            "agreeing, no update longer than the median, nobody above twice an equal share, sizes agreed",
            {"aggregation.rule": "agreeing", **_BOUNDED},
            agreed_sizes=True,
        ),
        Defence(
            "all+rank",
            "the same, with Lazy MIL's claims compared by rank",
            {"aggregation.rule": "agreeing", **_BOUNDED},
            {"claims": "rank"},
            agreed_sizes=True,
        ),
        Defence(
            "remembering",
            "agreeing, no update longer than 1.5 times the median, nobody above twice an equal share, sizes "
            "agreed, nobody asked again who was left out twice and in most of its rounds",
            {
                "aggregation.rule": "agreeing",
                "aggregation.norm_bound": 1.5,
                "aggregation.share_cap": 2.0,
                "aggregation.exclude_after": 2,
            },
            agreed_sizes=True,
        ),
    )
}


def attack_table(
    config: Config,
    out: Path,
    attacks: Sequence[str],
    liars: Sequence[int],
    defences: Sequence[str],
    say: Callable[[str], None] = lambda _: None,
) -> AttackTable:
    """Train every cell that is not in `out/attacks.json` yet; returns the whole table.

    The liars are drawn by the config's seed: the first of them are the same for any number. A row without them
    shows what their text is worth. `InUseError` if another process works at the table.
    """
    _check_names(attacks, ATTACKS, "attack")
    _check_names(defences, DEFENCES, "defence")
    counts = [count for count in liars if count]
    wanted = [(NONE, 0, defence) for defence in defences] + [(ABSENT.name, count, NONE) for count in counts]
    wanted += [(attack, count, name) for count in counts for attack in attacks for name in defences]
    with locked(out):
        return _completed(config, out, wanted, say)


def fitting(config: Config) -> list[str]:
    """The defences that the config's method and its number of sites can have."""
    found = []
    for name, defence in DEFENCES.items():
        with suppress(UserError):
            _check_defence(config, defence)
            found.append(name)
    return found or [NONE]  # that says what is wrong with the config


def _completed(
    config: Config, out: Path, wanted: Sequence[tuple[str, int, str]], say: Callable[[str], None]
) -> AttackTable:
    """The table with all cells that are wanted, in a folder that is locked."""
    file, folder = out / "attacks.json", out / "run"
    metric = config.evaluation.measure
    table = AttackTable(metric=metric, config=run_id(config))
    if file.exists():
        table = read_json(AttackTable, file)
    if table.config != run_id(config):
        raise UserError("is of another config", file=file, hint="choose another folder")
    done = {(one.attack, one.liars, one.defence) for one in table.cells}
    missing = [cell for cell in wanted if cell not in done]
    for name in {defence: None for *_, defence in missing}:  # before the first is trained
        _check_defence(config, DEFENCES[name])
    remove_run(folder)  # of a process that was killed
    for number, (attack, count, defence) in enumerate(missing, 1):
        cell = _cell(config, folder, attack, count, DEFENCES[defence])
        table = table.model_copy(update={"cells": [*table.cells, cell]})
        write_json(file, table)
        remove_run(folder)
        value = "stopped" if cell.value is None else f"{cell.value:.3f}"
        say(f"{number} of {len(missing)}: {attack} by {count}, {defence}: {metric} {value}")
    return table


class AttackedSites(SimulatedSites):
    """Simulated sites of which some lie."""

    def __init__(self, attack: Attack, liars: Sequence[int], *, agreed_sizes: bool) -> None:
        self._attack, self._liars, self._agreed = attack, liars, agreed_sizes

    def prepare(self, config: Config, progress: Progress | None) -> Preparation:
        """Read and divide the data; liars that flip labels hold others."""
        ready = super().prepare(config, progress)
        if not self._attack.flips_labels:
            return ready
        parts = ready.site_data.partition
        rows = [parts.rows(site) for site in self._liars]
        return replace(ready, site_data=OtherLabels.of(ready.site_data, np.concatenate([*rows, []])))

    @contextmanager
    def engine(self, config: Config, ready: Preparation, out: Path, *, fresh: bool) -> Iterator[Engine]:
        """The config's engine, with lies on the way."""
        sizes, triples = ready.site_data.partition.sizes, ready.dataset.corpus.triple_count
        agreed = 10 ** np.ceil(np.log10(np.maximum(sizes, 1))).astype(np.int64) if self._agreed else None
        with super().engine(config, ready, out, fresh=fresh) as inner:
            yield AttackedEngine(inner, self._attack, self._liars, sizes, triples, agreed)


class OtherLabels(SiteData):
    """Data in which some rows have another relation, under the same triple number."""

    @classmethod
    def of(cls, data: SiteData, rows: Ints) -> OtherLabels:
        """The same data, but for the relation of these rows: the next in the list, of the last one the first."""
        corpus = copy(data.corpus)
        relation = np.array(corpus.relation)
        relation[rows.astype(np.int64)] = (relation[rows.astype(np.int64)] + 1) % len(corpus.relations)
        object.__setattr__(corpus, "relation", relation)
        return cls(**{**vars(data), "text": corpus})

    def bags(self, rows: Ints) -> Bags:
        """Bags as before, with the labels of their first sentences."""
        bags = super().bags(rows)
        return replace(bags, labels=self.corpus.relation[bags.rows[bags.bounds[:-1]]].astype(np.int64))


def drawn(config: Config, sites: int, count: int) -> list[int]:
    """Which sites lie."""
    return sorted(numpy_generator(config.seed, "liars").permutation(sites)[:count].tolist())


def _cell(config: Config, folder: Path, attack: str, count: int, defence: Defence) -> AttackCell:
    """One run: the metric on test of its best round on dev, or nothing if the run could not go on."""
    liars = drawn(config, config.partition.sites, count)
    lie = {NONE: Attack(NONE, ""), ABSENT.name: ABSENT}.get(attack) or ATTACKS[attack]
    sites = AttackedSites(lie, liars, agreed_sizes=defence.agreed_sizes)
    value, stopped = None, None
    try:
        value = run(_defended(config, defence), folder, sites=sites).metrics[config.evaluation.measure]
    except LostRunError as error:
        stopped = error.problem
    return AttackCell(attack=attack, liars=count, defence=defence.name, value=value, stopped=stopped)


def _defended(config: Config, defence: Defence) -> Config:
    """The config of a run with a defence."""
    return config.with_settings(
        {
            **defence.settings,
            **option_settings(config.method, defence.options),
            "engine.kind": "local",
            "case_study": 0,
        }
    )


def _check_defence(config: Config, defence: Defence) -> None:
    """Fail if the config's method, or a round of so few sites, cannot have a defence."""
    chosen = _defended(config, defence)
    trained = method(chosen.method, chosen.methods)
    check_protection(trained, chosen)
    check_cohort(trained, chosen, max(int(chosen.training.fraction * chosen.partition.sites + 1e-9), 1))


def _check_names(given: Sequence[str], known: Mapping[str, object], what: str) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"no {what} is called {name!r}", hint=nearest(name, known))
