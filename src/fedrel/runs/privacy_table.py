"""What ε costs, as a table on one config: a metric against ε.

The config is trained with the noise that each ε takes, and without noise. Where it has a `[sweep]`, every
combination of it is tried for every ε with the first seed, and the best on dev is trained with the others: the same
search for each. Every run is kept in `privacy.json` as soon as it is done, so that a table that was stopped goes on
where it was, within a run, too. Only then is the run's folder removed. One process at a time works at a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.files import locked
from fedrel.methods.by_name import check_privacy, method
from fedrel.privacy.differential_privacy import noise_for
from fedrel.runs.compare import Watch, finished
from fedrel.runs.folder import read_json, remove_run, write_json
from fedrel.runs.kept_runs import run_id
from fedrel.runs.prepare import new_extractor, prepare
from fedrel.runs.records import PrivacyRow, PrivacyTable
from fedrel.runs.round_outcome import LostRunError, Spending
from fedrel.runs.sweep import points
from fedrel.runs.train import Watcher

NOISE = "privacy.dp.noise"
_SECTION = "privacy.dp."


def privacy_table(
    config: Config,
    out: Path,
    targets: Sequence[float | None],
    seeds: Sequence[int],
    watch: Watch = lambda _, __: Watcher(),
) -> PrivacyTable:
    """Train what is not in `out/privacy.json` yet; returns the whole table. A target of None is without noise.

    The config's own noise says nothing; its level, clip and δ are those of all runs. `InUseError` if another
    process works at the table.
    """
    dp = config.privacy.dp
    if dp is None:
        hint = "say privacy.dp.level, clip and any noise: the noise is replaced by what each ε takes"
        raise UserError("the config has no [privacy.dp]", hint=hint)
    check_privacy(method(config.method, config.methods), config)
    table = PrivacyTable(
        metric=config.evaluation.measure,
        config=_table_digest(config),
        method=config.method,
        level=dp.level,
        delta=dp.delta,
        clip=dp.clip,
    )
    with locked(out):
        return _completed(config, out, table, targets, seeds, watch)


def _completed(
    config: Config,
    out: Path,
    table: PrivacyTable,
    targets: Sequence[float | None],
    seeds: Sequence[int],
    watch: Watch,
) -> PrivacyTable:
    """The table with all runs that are asked for, in a folder that is locked; `table` is one without any."""
    file, runs, digest = out / "privacy.json", out / "run", table.config
    if file.exists():
        table = read_json(PrivacyTable, file)
    if table.config != digest:
        raise UserError("is of another config", file=file, hint="choose another folder")
    for row in table.rows if runs.exists() else []:  # a process was killed before it removed them
        _remove(config, row, runs)
    for number, seed in enumerate(seeds):
        for target in targets:
            tried = [table.best(target)] if number else _tried(config, target)
            for settings in tried:
                if table.has(target, seed, settings):
                    continue
                chosen = _one_run(config, settings, seed)
                watcher = watch(_run_name(target, settings, seed), chosen)
                row = _row(chosen, runs, target, watcher).model_copy(update={"settings": settings})
                table = table.model_copy(update={"rows": [*table.rows, row]})
                write_json(file, table)
                _remove(config, row, runs)
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
    own = run_id(config.with_settings({NOISE: 1.0, "seed": 0}))
    return (
        hashlib.sha256(f"{own} {sorted(config.sweep.items())}".encode()).hexdigest()[:32]
        if config.sweep
        else own
    )


def _tried(config: Config, target: float | None) -> list[dict[str, Any]]:
    """What is tried for an ε; without noise, nothing of the noise."""
    return points({key: some for key, some in config.sweep.items() if target or not key.startswith(_SECTION)})


def _run_name(target: float | None, settings: Mapping[str, Any], seed: int) -> str:
    noise = "without noise" if target is None else f"ε {target:g}"
    tried = "".join(f", {key.rpartition('.')[2]} {value}" for key, value in settings.items())
    return f"{noise}{tried}, seed {seed}"


def _row(config: Config, runs: Path, target: float | None, watcher: Watcher) -> PrivacyRow:
    """One run: the metric on test of its best round on dev, or nothing if the run could not go on.

    It has a folder in `runs`, so that a run that was killed goes on from its checkpoint.
    """
    noise = None if target is None else needed_noise(config, target)
    row = PrivacyRow(target=target, seed=config.seed, noise=noise)
    chosen = _with_noise(config, noise)
    try:
        result = finished(chosen, _folder(runs, chosen), watcher)
    except LostRunError as error:
        return row.model_copy(update={"stopped": error.problem})
    value = result.metrics[config.evaluation.measure]
    dev = next(iter(result.dev_metric.values()), None)
    return row.model_copy(update={"value": value, "dev": dev, "epsilon": result.epsilon})


def _one_run(config: Config, settings: Mapping[str, Any], seed: int) -> Config:
    """The config of a run, but for its noise."""
    return config.with_settings({**settings, "seed": seed, "case_study": 0})


def _with_noise(config: Config, noise: float | None) -> Config:
    """A run's config with its noise; None: without differential privacy."""
    if noise is not None:
        return config.with_settings({NOISE: noise})
    return config.model_copy(update={"privacy": config.privacy.model_copy(update={"dp": None})})


def _folder(runs: Path, config: Config) -> Path:
    return runs / config.digest()[:10]


def _remove(config: Config, row: PrivacyRow, runs: Path) -> None:
    """Remove the folder of a run whose row is written, if it is there."""
    remove_run(_folder(runs, _with_noise(_one_run(config, row.settings, row.seed), row.noise)))
    with suppress(OSError):
        runs.rmdir()  # fails if another run is in it
