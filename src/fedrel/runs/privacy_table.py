"""What ε costs, as a table on one config: a metric against ε.

The config is trained with the noise that each ε takes, and without noise. Where it has a `[sweep]`, every
combination of it is tried for every ε with the first seed, and the best on dev is trained with the others: the same
search for each. Every run is kept in `privacy.json` as soon as it is done, so that a table that was stopped goes on
where it was, within a run, too.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.methods.by_name import check_privacy, method
from fedrel.privacy.differential_privacy import noise_for
from fedrel.runs.compare import Watch, finished
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.prepare import new_extractor, prepare
from fedrel.runs.records import PrivacyRow, PrivacyTable
from fedrel.runs.round_outcome import Spending
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
            tried = [table.best(target)] if number else _tried(config, target)
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


def _tried(config: Config, target: float | None) -> list[dict[str, Any]]:
    """What is tried for an ε; without noise, nothing of the noise."""
    return points({key: some for key, some in config.sweep.items() if target or not key.startswith(_SECTION)})


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
