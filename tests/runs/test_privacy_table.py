"""A metric against ε: a table that goes on where it stopped, within a run, too; and its page."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedrel.cli.table_commands import _targets
from fedrel.errors import UserError
from fedrel.files import InUseError, locked
from fedrel.runs import privacy_table as module
from fedrel.runs.folder import read_json
from fedrel.runs.privacy_table import needed_noise, privacy_table
from fedrel.runs.records import PrivacyRow, PrivacyTable
from fedrel.runs.train import Watcher
from fedrel.studio.protection_pages import privacy_markdown, write_privacy_page
from tests.conftest import tiny

needs_accounting = pytest.mark.skipif(find_spec("dp_accounting") is None, reason="needs the extra `privacy`")
RESULTS = Path(__file__).parents[2] / "results"
DP = {"privacy__dp__level": "site", "privacy__dp__noise": 1, "privacy__dp__clip": 0.1}


@needs_accounting
def test_a_run_costs_what_was_asked_for(tmp_path):
    config = tiny(method="fedavg", extractor__train_words=False, training__rounds=2, **DP)
    table = privacy_table(config, tmp_path, [2.0, None], [3])
    with_noise, without = table.rows
    assert with_noise.noise == needed_noise(config.with_settings(["seed=3"]), 2.0)
    assert 1.98 < with_noise.epsilon <= 2.0 and with_noise.seed == 3
    assert without.noise is None and without.epsilon is None and 0 < without.value <= 1
    assert [path.name for path in tmp_path.iterdir()] == ["privacy.json"]


@needs_accounting
def test_the_noise_of_secure_sums_is_that_of_the_site_drawn_most_often():
    config = tiny(method="fedavg", training__rounds=4, **DP, privacy__dp__sampling="fixed")
    secure = config.with_settings(["privacy.secure_sum=true"])
    assert needed_noise(secure, 2.0) > needed_noise(secure.with_settings(["training.rounds=1"]), 2.0)
    assert needed_noise(config, 8.0) < needed_noise(config, 1.0)


@needs_accounting
def test_noise_in_shares_costs_no_more_than_was_asked_for(tmp_path):
    config = tiny(
        method="fedavg", extractor__train_words=False, training__rounds=2, training__fraction=1.0, **DP
    )
    secure = config.with_settings({"privacy.secure_sum": True, "privacy.dp.sampling": "fixed"})
    (row,) = privacy_table(secure, tmp_path, [2.0], [1]).rows
    assert 1.9 < row.epsilon <= 2.0


@needs_accounting
def test_another_search_is_another_table(tmp_path, monkeypatch):
    monkeypatch.setattr(
        module, "_row", lambda config, *_: PrivacyRow(target=None, seed=1, value=0.5, dev=0.5)
    )
    config = tiny(method="fedavg", **DP)
    privacy_table(
        config.model_copy(update={"sweep": {"training.learning_rate": [0.1]}}), tmp_path, [None], [1]
    )
    with pytest.raises(UserError, match="is of another config"):
        privacy_table(
            config.model_copy(update={"sweep": {"training.learning_rate": [0.2]}}), tmp_path, [None], [1]
        )


@needs_accounting
def test_a_table_of_epsilon_that_was_stopped_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    asked = []

    def row(config, folder, target, watcher):
        asked.append((target, config.seed))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return PrivacyRow(target=target, seed=config.seed, value=0.5)

    monkeypatch.setattr(module, "_row", row)
    config = tiny(method="fedavg", **DP)
    with pytest.raises(KeyboardInterrupt):
        privacy_table(config, tmp_path, [1.0, None], [1, 2])
    assert len(privacy_table(config, tmp_path, [1.0, None], [1, 2]).rows) == 4
    assert asked == [(1.0, 1), (None, 1), (1.0, 2), (1.0, 2), (None, 2)]
    for other in ("privacy.dp.clip=1", "training.rounds=60"):
        with pytest.raises(UserError, match="is of another config"):
            privacy_table(config.with_settings([other]), tmp_path, [1.0], [1])
    with pytest.raises(UserError, match=r"the config has no \[privacy.dp\]"):
        privacy_table(tiny(method="fedavg"), tmp_path, [1.0], [1])


@needs_accounting
def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path):
    config = tiny(method="fedavg", extractor__train_words=False, training__rounds=3, **DP)
    seen = []

    def watch(name, _):
        def round_done(one):
            seen.append((name, one.round))
            if len(seen) == 2:
                raise KeyboardInterrupt

        return Watcher(round_done=round_done)

    with pytest.raises(KeyboardInterrupt):
        privacy_table(config, tmp_path / "stopped", [2.0], [1], watch)
    stopped = privacy_table(config, tmp_path / "stopped", [2.0], [1], watch)
    assert seen == [("ε 2, seed 1", 1), ("ε 2, seed 1", 2), ("ε 2, seed 1", 3)]
    assert stopped == privacy_table(config, tmp_path / "whole", [2.0], [1])
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == ["privacy.json"]


def small(**settings):
    return tiny(
        **{"method": "fedavg", "training__rounds": 2, "extractor__train_words": False, **DP, **settings}
    )


@pytest.fixture
def seen():
    """The rounds that were trained, by the watch that comes with them; it stops the first run after a round."""
    rounds = []

    def watch(_name, _config):
        def round_done(one):
            rounds.append(one.round)
            if len(rounds) == 1:
                raise KeyboardInterrupt

        return Watcher(round_done=round_done)

    return rounds, watch


@needs_accounting
def test_one_process_works_at_a_table(out):
    with locked(out), pytest.raises(InUseError, match="another process works in this folder"):
        privacy_table(small(), out, [None], [1])
    assert not out.exists()


@needs_accounting
def test_a_run_in_which_another_process_works_is_left_alone(out, seen):
    rounds, watch = seen
    with pytest.raises(KeyboardInterrupt):
        privacy_table(small(), out, [None], [1], watch)
    (folder,) = (out / "run").iterdir()
    before = sorted(folder.rglob("*"))
    with locked(folder), pytest.raises(InUseError):
        privacy_table(small(), out, [None], [1], watch)
    assert sorted(folder.rglob("*")) == before and not (out / "privacy.json").exists()
    (row,) = privacy_table(small(), out, [None], [1], watch).rows
    assert row.stopped is None and row.value is not None and rounds == [1, 2]


@needs_accounting
def test_a_run_that_cannot_be_written_is_missing_and_not_stopped(out):
    out.mkdir()
    (out / "run").touch()
    with pytest.raises(UserError, match="cannot write"):
        privacy_table(small(), out, [None], [1])
    assert not (out / "privacy.json").exists()


@needs_accounting
def test_a_run_that_diverges_is_stopped(out):
    (row,) = privacy_table(small(training__learning_rate=1e8), out, [None], [1]).rows
    assert row.value is None and "training diverged" in row.stopped
    assert [path.name for path in out.iterdir()] == ["privacy.json"]


@needs_accounting
@pytest.mark.parametrize("target", [None, 2.0])
@pytest.mark.parametrize("killed_in", ["write_json", "remove_run"])
def test_a_run_is_removed_once_its_row_is_written(out, monkeypatch, target, killed_in):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, killed_in, killed)
        privacy_table(small(), out, [target], [1])
    (folder,) = (out / "run").iterdir()
    assert (folder / "result.json").exists()
    assert (out / "privacy.json").exists() == (killed_in == "remove_run")
    again = []
    table = privacy_table(small(), out, [target], [1], lambda *_: Watcher(round_done=again.append))
    assert len(table.rows) == 1 and not again, "nothing is trained anew"
    assert [path.name for path in out.iterdir()] == ["privacy.json"]


@needs_accounting
def test_settings_are_searched_with_the_first_seed_and_chosen_on_dev(tmp_path, monkeypatch):
    def row(config, folder, target, watcher):
        rate, clip = config.training.learning_rate, config.privacy.dp.clip
        dev = -abs(rate - 0.2) - (abs(clip - 0.5) if target else 0)
        return PrivacyRow(target=target, seed=config.seed, value=rate, dev=dev + 2)

    monkeypatch.setattr(module, "_row", row)
    grid = {"training.learning_rate": [0.1, 0.2], "privacy.dp.clip": [0.5, 1.0]}
    config = tiny(method="fedavg", **DP).model_copy(update={"sweep": grid})
    table = privacy_table(config, tmp_path, [1.0, None], [1, 2])
    assert len(table.rows) == 4 + 2 + 2, "clip means nothing without noise; the second seed has the best only"
    assert table.best(1.0) == {"training.learning_rate": 0.2, "privacy.dp.clip": 0.5}
    assert table.values(1.0) == table.values(None) == [0.2, 0.2]
    assert privacy_table(config, tmp_path, [1.0, None], [1, 2]) == table
    assert "(ε 1: 0.2, 0.5; ε ∞: 0.2)" in privacy_markdown(table)


@needs_accounting
def test_the_page_has_a_row_for_each_epsilon(tmp_path):
    rows = [
        PrivacyRow(target=None, seed=1, value=0.8),
        PrivacyRow(target=8.0, seed=1, noise=0.5, epsilon=8.0, value=0.6),
        PrivacyRow(target=8.0, seed=2, noise=0.5, epsilon=8.0, value=0.4),
        PrivacyRow(target=0.5, seed=1, noise=5.0, stopped="the model diverged"),
    ]
    table = PrivacyTable(
        metric="auc", config="", method="fedavg", level="site", delta=1e-5, clip=0.1, rows=rows
    )
    lines = privacy_markdown(table).splitlines()
    start = lines.index("|---:|---:|---:|---:|---:|") + 1
    assert [line.split("|")[1].strip() for line in lines[start : start + 3]] == ["0.5", "8", "∞"]
    assert "0.500 ± 0.141" in lines[start + 1] and lines[start].endswith("| 1 | 1 |")
    page = write_privacy_page(tmp_path, table)
    assert page.read_text() == privacy_markdown(table) and "<svg" in (tmp_path / "privacy.svg").read_text()


@needs_accounting
def test_the_command(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(tiny(method="fedavg", training__rounds=1, extractor__train_words=False, **DP).to_toml())
    command = [sys.executable, "-m", "fedrel", "privacy", str(config), "--epsilons", "8", "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["target"] == 8 and row["epsilon"] <= 8 and (tmp_path / "out" / "privacy.md").exists()


@needs_accounting
def test_values_of_epsilon():
    assert _targets("0.5,8,inf") == [0.5, 8.0, None]
    for wrong in ("0,1", "much", "-1"):
        with pytest.raises(UserError, match="expected numbers above 0"):
            _targets(wrong)


@pytest.mark.parametrize("folder", sorted({path.parent for path in RESULTS.glob("privacy/*/privacy.json")}))
def test_committed_tables_of_privacy_come_from_their_json(folder: Path) -> None:
    page = privacy_markdown(read_json(PrivacyTable, folder / "privacy.json"))
    assert page == (folder / "privacy.md").read_text(encoding="utf-8")
