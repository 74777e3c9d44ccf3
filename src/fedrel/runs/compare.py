"""Several methods and seeds side by side: `compare`, and `sweep`, which finds each method's settings on dev."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.files import write_text
from fedrel.runs.records import ComparisonRow, read_run
from fedrel.runs.train import Watcher, run

Settings = Mapping[str, Any]
Watch = Callable[[str, Config], Watcher]


def compare(
    config: Config,
    out: Path,
    methods: Sequence[str],
    seeds: int,
    *,
    best: Mapping[str, Settings] | None = None,
    watch: Watch = lambda _, __: Watcher(),
) -> list[ComparisonRow]:
    """Run every method with every seed; finished runs are kept, a stopped one goes on where it was.

    Seeds are `seeds` numbers from the config's own. `best` holds settings by method, from a sweep.
    """
    from fedrel.studio.report import write_comparison_report
    from fedrel.studio.tables import comparison_markdown

    runs: dict[str, list[Path]] = {}
    for method in methods:
        for seed in range(config.seed, config.seed + seeds):
            folder = out / method / f"seed-{seed}"
            chosen = with_settings(config, {**(best or {}).get(method, {}), "method": method, "seed": seed})
            finished(chosen, folder, watch(f"{method}, seed {seed}", chosen))
            runs.setdefault(method, []).append(folder)
    rows = [ComparisonRow.of(method, read_run(folder)) for method in runs for folder in runs[method]]
    written = {"rows": [row.model_dump() for row in rows]}
    write_text(out / "comparison.json", json.dumps(written, indent=2))
    write_text(out / "comparison.md", comparison_markdown(rows))
    write_comparison_report(out, runs)
    return rows


def sweep(
    config: Config,
    out: Path,
    grid: Mapping[str, Sequence[Any]],
    methods: Sequence[str],
    watch: Watch = lambda _, __: Watcher(),
) -> dict[str, Any]:
    """Run every combination of the grid for every method; the best of each on dev goes to `sweep.json`."""
    if not grid:
        raise UserError("nothing to sweep", hint="give --grid key=v1,v2, or a [sweep] section in the config")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    rows: list[dict[str, Any]] = []
    for method in methods:
        for settings in combinations:
            name = ",".join(f"{key}={value}" for key, value in settings.items())
            chosen = with_settings(config, {**settings, "method": method})
            result = finished(chosen, out / method / name, watch(f"{method}, {name}", chosen))
            (metric, value), *_ = result["dev_metric"].items()
            rows.append(
                {
                    "method": method,
                    "settings": settings,
                    "metric": metric,
                    "dev": value,
                    "to_target": result["to_target"],
                }
            )
    best = {
        method: max((row for row in rows if row["method"] == method), key=lambda row: row["dev"])["settings"]
        for method in methods
    }
    found = {"rows": rows, "best": best}
    write_text(out / "sweep.json", json.dumps(found, indent=2))
    return found


def best_of(folder: Path) -> dict[str, Settings]:
    """Each method's best settings, from a sweep's folder."""
    try:
        best: dict[str, Settings] = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["best"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError("holds no finished sweep", file=folder, hint="run `fedrel sweep` first") from error
    return best


def finished(config: Config, folder: Path, watcher: Watcher) -> dict[str, Any]:
    """The result of a run: read if the same run is finished there, else trained, from a checkpoint if any."""
    from fedrel.runs.checkpoint import Checkpoints

    done = folder / "result.json"
    if done.exists():
        checkpoint = Checkpoints(folder / "checkpoint", config.shapes_result()).latest()
        if checkpoint is not None and checkpoint.round == config.training.rounds:
            result: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
            return result
    return run(config, folder, resume=True, watcher=watcher)


def with_settings(config: Config, settings: Settings) -> Config:
    """The config with some keys set."""
    return config.with_settings(settings)
