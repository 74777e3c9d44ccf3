"""What ε costs: the same config trained with the noise that each ε takes, and without noise.

Every run is kept in `privacy.json` as soon as it is done, so that a table that was stopped goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.methods.by_name import check_privacy, method
from fedrel.privacy.accounting import noise_for
from fedrel.runs.folder import read_json, write_json
from fedrel.runs.prepare import prepare
from fedrel.runs.records import PrivacyRow, PrivacyTable
from fedrel.runs.spending import Spending
from fedrel.runs.train import run

NOISE = "privacy.dp.noise"


def privacy_table(
    config: Config,
    out: Path,
    targets: Sequence[float | None],
    seeds: Sequence[int],
    say: Callable[[str], None] = lambda _: None,
) -> PrivacyTable:
    """Train what is not in `out/privacy.json` yet; returns the whole table. A target of None is without noise.

    The config's own noise says nothing; its level, clip and δ are those of all runs.
    """
    dp = config.privacy.dp
    if dp is None:
        hint = "say privacy.dp.level, clip and any noise: the noise is replaced by what each ε takes"
        raise UserError("the config has no [privacy.dp]", hint=hint)
    check_privacy(method(config.method, config.methods), config)
    file, digest = out / "privacy.json", config.with_settings({NOISE: 1.0, "seed": 0}).digest()
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
    done = {(one.target, one.seed) for one in table.rows}
    missing = [(t, seed) for seed in seeds for t in targets if (t, seed) not in done]
    for number, (target, seed) in enumerate(missing, 1):
        row = _row(config.with_settings({"seed": seed, "case_study": 0}), out / "run", target)
        table = table.model_copy(update={"rows": [*table.rows, row]})
        write_json(file, table)
        value = "stopped" if row.value is None else f"{row.value:.3f}"
        about = "without noise" if target is None else f"ε {target:g}, noise {row.noise or 0:.3g}"
        say(f"{number} of {len(missing)}: {about}, seed {seed}: {table.metric} {value}")
    return table


def _row(config: Config, folder: Path, target: float | None) -> PrivacyRow:
    """One run: the metric on test of its best round on dev, or nothing if the run could not go on."""
    noise = None
    if target is None:
        privacy = config.privacy.model_copy(update={"dp": None})
        chosen = config.model_copy(update={"privacy": privacy})
    else:
        noise = needed_noise(config, target)
        chosen = config.with_settings({NOISE: noise})
    shutil.rmtree(folder, ignore_errors=True)
    row = PrivacyRow(target=target, seed=config.seed, noise=noise)
    try:
        result = run(chosen, folder)
        value = result.metrics[config.evaluation.measure]
        row = row.model_copy(update={"value": value, "epsilon": result.epsilon})
    except UserError as error:
        row = row.model_copy(update={"stopped": error.problem})
    shutil.rmtree(folder, ignore_errors=True)
    return row


def needed_noise(config: Config, target: float) -> float:
    """The least noise with which the whole run costs at most ε `target`, if no round fails."""
    sizes = prepare(config).site_data.partition.sizes

    def cost(noise: float) -> float:
        return Spending(config.with_settings({NOISE: noise})).plan(sizes, config.seed)

    return noise_for(target, cost)
