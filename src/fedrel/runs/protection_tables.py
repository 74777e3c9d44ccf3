"""What protection costs, as tables on one config: attacks against defences, and a metric against ε.

What lying sites cost: a run for each attack and defence. Every cell is trained anew with some of the sites lying,
and kept in `attacks.json` as soon as it is done.

What ε costs: the same config trained with the noise that each ε takes, and without noise. Where the config has a
`[sweep]`, every combination of it is tried for every ε with the first seed, and the best on dev is trained with the
others: the same search for each. Every run is kept in `privacy.json` as soon as it is done.

So a table that was stopped goes on where it was; that of ε within a run, too.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
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
from fedrel.methods.by_name import check_privacy, method, option_settings
from fedrel.privacy.differential_privacy import noise_for
from fedrel.runs.compare import Watch, finished
from fedrel.runs.engines import SimulatedSites
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.prepare import Ints, Preparation, new_extractor, prepare
from fedrel.runs.records import AttackCell, AttackTable, PrivacyRow, PrivacyTable
from fedrel.runs.round_outcome import Spending
from fedrel.runs.train import Watcher, run
from fedrel.seeding import numpy_generator

NONE = "none"  # the attack, and the defence, that is none

NOISE = "privacy.dp.noise"
_SECTION = "privacy.dp."


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
    shows what their text is worth.
    """
    _check_names(attacks, ATTACKS, "attack")
    _check_names(defences, DEFENCES, "defence")
    file = out / "attacks.json"
    metric = config.evaluation.measure
    table = AttackTable(metric=metric, config=config.digest())
    if file.exists():
        table = read_json(AttackTable, file)
    if table.config != config.digest():
        raise UserError("is of another config", file=file, hint="choose another folder")
    done = {(one.attack, one.liars, one.defence) for one in table.cells}
    counts = [count for count in liars if count]
    wanted = [(NONE, 0, defence) for defence in defences] + [(ABSENT.name, count, NONE) for count in counts]
    wanted += [(attack, count, name) for count in counts for attack in attacks for name in defences]
    missing = [cell for cell in wanted if cell not in done]
    for number, (attack, count, defence) in enumerate(missing, 1):
        cell = _cell(config, out / "run", attack, count, DEFENCES[defence])
        table = table.model_copy(update={"cells": [*table.cells, cell]})
        write_json(file, table)
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


def privacy_table(
    config: Config,
    out: Path,
    targets: Sequence[float | None],
    seeds: Sequence[int],
    watch: Watch = lambda _, __: Watcher(),
) -> PrivacyTable:
    """Train what is not in `out/privacy.json` yet; returns the whole table. A target of None is without noise.

    The config's own noise says nothing; its level, clip and δ are those of all runs.
    """
    dp = config.privacy.dp
    if dp is None:
        hint = "say privacy.dp.level, clip and any noise: the noise is replaced by what each ε takes"
        raise UserError("the config has no [privacy.dp]", hint=hint)
    check_privacy(method(config.method, config.methods), config)
    file, digest = out / "privacy.json", _table_digest(config)
    table = PrivacyTable(
        metric=config.evaluation.measure,
        config=digest,
        method=config.method,
        level=dp.level,
        delta=dp.delta,
        clip=dp.clip,
    )
    if file.exists():
        table = read_json(PrivacyTable, file)
    if table.config != digest:
        raise UserError("is of another config", file=file, hint="choose another folder")
    for number, seed in enumerate(seeds):
        for target in targets:
            tried = [table.best(target)] if number else _combinations(config, target)
            for settings in tried:
                if table.has(target, seed, settings):
                    continue
                chosen = config.with_settings({**settings, "seed": seed, "case_study": 0})
                watcher = watch(_run_name(target, settings, seed), chosen)
                row = _row(chosen, out / "run", target, watcher).model_copy(update={"settings": settings})
                table = table.model_copy(update={"rows": [*table.rows, row]})
                write_json(file, table)
    return table


def needed_noise(config: Config, target: float) -> float:
    """The least noise with which the whole run costs at most ε `target`, if no round fails."""
    ready = prepare(config)
    sizes, numbers = ready.site_data.partition.sizes, 0
    if config.privacy.site_noise and config.privacy.secure_sum:
        weights = new_extractor(config, ready).state().values()
        numbers = 2 * sum(weight.size for weight in weights)  # SCAFFOLD's are twice the model's

    def cost(noise: float) -> float:
        return Spending(config.with_settings({NOISE: noise})).plan(sizes, config.seed, numbers)

    return noise_for(target, cost)


def _table_digest(config: Config) -> str:
    """What a table is known by: all that shapes its runs but noise and seed, and what is searched."""
    own = config.with_settings({NOISE: 1.0, "seed": 0}).digest()
    return (
        hashlib.sha256(f"{own} {sorted(config.sweep.items())}".encode()).hexdigest()[:32]
        if config.sweep
        else own
    )


def _combinations(config: Config, target: float | None) -> list[dict[str, Any]]:
    """What is tried for an ε; without noise, nothing of the noise."""
    grid = {key: some for key, some in config.sweep.items() if target or not key.startswith(_SECTION)}
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _run_name(target: float | None, settings: Mapping[str, Any], seed: int) -> str:
    noise = "without noise" if target is None else f"ε {target:g}"
    tried = "".join(f", {key.rpartition('.')[2]} {value}" for key, value in settings.items())
    return f"{noise}{tried}, seed {seed}"


def _row(config: Config, folder: Path, target: float | None, watcher: Watcher) -> PrivacyRow:
    """One run: the metric on test of its best round on dev, or nothing if the run could not go on.

    It is in `folder` until it is over, so that a run that was killed goes on from its checkpoint.
    """
    noise = None
    if target is None:
        privacy = config.privacy.model_copy(update={"dp": None})
        chosen = config.model_copy(update={"privacy": privacy})
    else:
        noise = needed_noise(config, target)
        chosen = config.with_settings({NOISE: noise})
    row = PrivacyRow(target=target, seed=config.seed, noise=noise)
    try:
        result = finished(chosen, folder / chosen.digest()[:10], watcher)
        value = result.metrics[config.evaluation.measure]
        dev = next(iter(result.dev_metric.values()), None)
        row = row.model_copy(update={"value": value, "dev": dev, "epsilon": result.epsilon})
    except UserError as error:
        row = row.model_copy(update={"stopped": error.problem})
    shutil.rmtree(folder, ignore_errors=True)
    return row


def _cell(config: Config, folder: Path, attack: str, count: int, defence: Defence) -> AttackCell:
    """One run: the metric on test of its best round on dev, or nothing if the run could not go on."""
    chosen = config.with_settings(
        {
            **defence.settings,
            **option_settings(config.method, defence.options),
            "engine.kind": "local",
            "case_study": 0,
        }
    )
    liars = drawn(config, config.partition.sites, count)
    lie = {NONE: Attack(NONE, ""), ABSENT.name: ABSENT}.get(attack) or ATTACKS[attack]
    sites = AttackedSites(lie, liars, agreed_sizes=defence.agreed_sizes)
    shutil.rmtree(folder, ignore_errors=True)
    value, stopped = None, None
    try:
        value = run(chosen, folder, sites=sites).metrics[config.evaluation.measure]
    except UserError as error:
        stopped = error.problem
    shutil.rmtree(folder, ignore_errors=True)
    return AttackCell(attack=attack, liars=count, defence=defence.name, value=value, stopped=stopped)


def _check_names(given: Sequence[str], known: Mapping[str, object], what: str) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"no {what} is called {name!r}", hint=nearest(name, known))
