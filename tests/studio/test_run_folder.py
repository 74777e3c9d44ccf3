"""What a real run of a classification leaves: as the documentation has it, with sites that can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedrel
from fedrel.config.schema import Config
from fedrel.data.partition import mirrored_by_label
from fedrel.runs.compare import compare
from fedrel.runs.prepare import configured_partition, prepare
from fedrel.runs.train import run
from tests.conftest import tiny
from tests.test_docs import paths, tables


def config(**changes: Any) -> Config:
    settings = {
        "method": "fedavg",
        "training__rounds": 2,
        "partition__kind": "dirichlet",
        "partition__sites": 4,
        "partition__alpha": 0.5,
        "extractor__bias": False,
        "evaluation__task": "classification",
        "evaluation__metric": "accuracy",
        "evaluation__target": 0.001,
    }
    return tiny(**settings | changes)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federated and a pooled method."""
    out = tmp_path_factory.mktemp("compared")
    compare(config(), out, ["fedavg", "centralised"], 1)
    return out


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_file_and_field_is_documented(compared: Path) -> None:
    page, folder = tables("run-folder.md"), compared / "fedavg" / "seed-1"
    files = {f"{path.name}{'/' if path.is_dir() else ''}" for path in folder.iterdir()}
    assert files - set(page["The files"]) == {"classes.json"}
    for name in ("classes.json", "label_counts.json"):
        assert set(page[name]) == paths(read(folder / name)), name
    result = read(folder / "result.json")
    assert set(page["to_target"]) == paths(result["to_target"])
    result["sites"] |= {"values": {"SITE": 0.5}, "rows": {"SITE": 7}}
    assert set(page["sites"]) == paths(result["sites"])
    rows = read(compared / "comparison.json")["rows"]
    for row in rows:
        row["target"] = {"METRIC": 0.5}
    assert set(page["A row of comparison.json"]) == paths(rows)


def test_label_counts_are_those_of_the_partition(compared: Path) -> None:
    ready = prepare(config())
    found = read(compared / "fedavg" / "seed-1" / "label_counts.json")
    parts = ready.site_data.partition
    assert found["sites"] == list(parts.names)
    assert found["counts"] == parts.label_counts(ready.dataset.corpus).tolist()
    pooled = read(compared / "centralised" / "seed-1" / "label_counts.json")
    assert pooled["sites"] == ["all"]
    assert pooled["counts"] == [np.sum(found["counts"], axis=0).tolist()]


def test_sites_make_up_the_whole(compared: Path) -> None:
    """Accuracies, weighted by the sizes of the shares, are the accuracy on the whole test set; also when pooled."""
    ready = prepare(config())
    shares = mirrored_by_label(ready.site_data.partition, ready.dataset.corpus, ready.dataset.test, 1)
    for method in ("fedavg", "centralised"):
        result = read(compared / method / "seed-1" / "result.json")
        values = result["sites"]["values"]
        assert list(values) == list(shares.names)
        known = [values[name] or 0.0 for name in shares.names]
        assert shares.sizes @ known / len(ready.dataset.test) == pytest.approx(result["metrics"]["accuracy"])
        assert result["sites"]["metric"] == "accuracy"


def test_a_pooled_method_is_compared_at_the_sites_of_the_others() -> None:
    federated, pooled = config(), config(method="centralised")
    one, other = (
        configured_partition(federated, prepare(federated)),
        configured_partition(pooled, prepare(pooled)),
    )
    assert one is not None
    assert other is not None
    assert one.order.tolist() == other.order.tolist()
    assert one.bounds.tolist() == other.bounds.tolist()


def test_a_pooled_method_needs_no_partition(out: Path) -> None:
    """More sites than sentences: no federated method could run, and nothing is said of sites."""
    found = fedrel.run(config(method="centralised", partition__kind="iid", partition__sites=5000), out)
    assert found.result.sites is None
    assert (out / "report.html").exists()


def test_one_site_is_not_measured_as_sites(out: Path) -> None:
    assert run(config(partition__kind="iid", partition__sites=1), out).sites is None
