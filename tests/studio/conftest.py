"""Run folders with made-up but plausible content, for the pages and tables to show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

QUALITY = {"none": 0.31, "one": 0.36, "ave": 0.34, "att": 0.37, "att-ra": 0.38, "lazy-mil": 0.44}
SENTENCES = [
    (3, "The board of Orvane named Tessa Quill as its new chief executive on Monday.", True),
    (3, "Tessa Quill spoke at a dinner in the town where Orvane keeps its archive.", False),
    (11, "Critics of Orvane were answered by Tessa Quill, who left the company long ago.", False),
    (17, "Tessa Quill, chief executive of Orvane, opened the plant.", True),
]


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def case(method: str, head: str = "Tessa Quill", tail: str = "Orvane") -> dict[str, Any]:
    """A triple whose sentences Lazy MIL tells apart, ONE half, and NONE not at all."""
    weights = {"none": [1.0, 1.0, 1.0, 1.0], "one": [1.0, 0.0, 1.0, 1.0], "lazy-mil": [0.12, 0.0, 0.0, 0.88]}
    use = weights.get(method, [0.61, 0.39, 1.0, 1.0])
    return {
        "head": head,
        "relation": "chief_executive_of",
        "tail": tail,
        "sentences": [
            {
                "row": 100 + row,
                "site": site,
                "text": (said := text.replace("Tessa Quill", head).replace("Orvane", tail)),
                "head_span": [said.index(head), said.index(head) + len(head)],
                "tail_span": [said.index(tail), said.index(tail) + len(tail)],
                "expresses": expresses,
                "seen": 0 if site == 11 else 4,
                "weight": 0.0 if site == 11 else weight,
            }
            for row, ((site, text, expresses), weight) in enumerate(zip(SENTENCES, use, strict=True))
        ],
    }


def write_run(folder: Path, method: str = "lazy-mil", seed: int = 1, rounds: int = 12, **result: Any) -> Path:
    """A whole run folder; keywords replace fields of its `result.json`."""
    folder.mkdir(parents=True)
    random = np.random.default_rng([seed, *method.encode()])
    best = QUALITY.get(method, 0.4) + 0.01 * float(random.normal())
    chosen = {"lazy-mil": 0.86, "one": 0.63}.get(method, 0.45)
    lines = []
    for number in range(1, rounds + 1):
        progress = 1 - 0.7**number
        claims = 61_000 if method == "lazy-mil" else 0
        kinds = {
            "Weights": {"up": 0, "down": 5_900_000},
            "Update": {"up": 5_900_000 - 40_000 * (number % 3), "down": 0},
        }
        if claims:
            kinds |= {"Claims": {"up": claims, "down": 0}, "Winners": {"up": 0, "down": claims // 8}}
        lines.append(
            {
                "round": number,
                "loss": 2.4 - 1.9 * progress + 0.04 * float(random.normal()),
                "dev": {"auc": best * progress + 0.004 * float(random.normal()), "max_f1": 0.4},
                "bytes": {
                    "up": sum(kind["up"] for kind in kinds.values()),
                    "down": sum(kind["down"] for kind in kinds.values()),
                    "by_kind": kinds,
                },
                "seconds": 2.7,
                "selection_precision": 0.45 + (chosen - 0.45) * progress + 0.005 * float(random.normal()),
                "active": [1, 3, 5, 8],
                "examples": 1234 + number,
                "refused": [{"site": 8, "reason": "Update: embedding.weight is not finite"}]
                if number == 3
                else [],
            }
        )
    (folder / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8"
    )
    recall = np.linspace(0.001, 1, 600)
    precision = np.clip(
        1 / (1 + (recall / best) ** 2.2) + 0.05 * random.normal(size=600) * np.exp(-recall * 30), 0, 1
    )
    write_json(folder / "pr_curve.json", {"precision": precision.tolist(), "recall": recall.tolist()})
    write_json(
        folder / "result.json",
        {
            "method": method,
            "seed": seed,
            "metrics": {
                "auc": best,
                "auc_2000": best * 0.9,
                "p_at_100": min(best * 2, 1),
                "p_at_200": best * 1.8,
                "p_at_300": best * 1.7,
                "p_mean": best * 1.83,
                "max_f1": best + 0.03,
            },
            "best_round": max(rounds - 2, 1),
            "rounds": rounds,
            "bytes": {
                "up": sum(line["bytes"]["up"] for line in lines),
                "down": sum(line["bytes"]["down"] for line in lines),
            },
            "seconds": 33.1,
            "selection_precision": chosen,
            **result,
        },
    )
    write_json(
        folder / "case_study.json",
        [case(method), case(method, "Ida Marrow", "Halden Works"), case(method, "Bo", "Ax")],
    )
    write_json(
        folder / "environment.json",
        {
            "python": "3.11.9",
            "versions": {"torch": "2.13.0", "numpy": "2.4.6"},
            "commit": "0f3c9ab",
            "cores": 2,
        },
    )
    (folder / "config.toml").write_text(
        f'method = "{method}"\nseed = {seed}\n\n[federation]\nsites = 20\n', encoding="utf-8"
    )
    return folder


RELATIONS = ["NA", "treats", "causes"]
CONFUSION = [[80, 15, 5], [10, 28, 2], [4, 6, 0]]  # `causes` is never found
SITES = {"north": 0.5, "south": 0.25, "west": None, "east": 0.75}
COUNTS = [[40, 9, 1], [12, 30, 0], [3, 0, 0], [20, 4, 16]]


def write_classification(
    folder: Path, method: str = "fedcmc", seed: int = 1, rounds: int = 4, **result: Any
) -> Path:
    """A run folder of a classification at four sites, of which the third is never active."""
    write_run(folder, method, seed, rounds)
    (folder / "pr_curve.json").unlink()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        fading = 0.5 ** line["round"]
        line |= {"dev": {"f1": 0.1 * line["round"]}, "active": [0, 1] if line["round"] % 2 else [1, 3]}
        line["bytes"]["framing"] = {"up": 400, "down": 300}
        line["class_distances"] = {
            str(site): [
                0.1 - 0.01 * count * fading - 0.001 * place for place, count in enumerate(COUNTS[site])
            ]
            for site in line["active"]
        }
    (folder / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8"
    )
    known = [value for value in SITES.values() if value is not None]
    written = json.loads((folder / "result.json").read_text("utf-8"))
    written |= {
        "metrics": {
            "f1": 0.6 + seed / 100,
            "precision": 0.5,
            "recall": 0.7,
            "macro_f1": 0.4,
            "accuracy": 0.72,
        },
        "dev_metric": {"f1": 0.1 * rounds},
        "to_target": {"round": 3, "up": 3000, "down": 6000},
        "sites": {
            "metric": "f1",
            "values": SITES,
            "fairness": {
                **{"mean": float(np.mean(known)), "spread": float(np.std(known)), "measured": len(known)},
                **{"worst": 0.25, "worst_site": "south", "best": 0.75, "best_site": "east"},
            },
        },
    }
    write_json(folder / "result.json", written | result)
    table = np.array(CONFUSION)
    scores = [
        {
            "relation": name,
            "f1": float(2 * table[c, c] / (table[c].sum() + table[:, c].sum())),
            "precision": float(table[c, c] / table[:, c].sum()),
            "recall": float(table[c, c] / table[c].sum()),
            "support": int(table[c].sum()),
        }
        for c, name in enumerate(RELATIONS)
    ]
    confusion = {"relations": RELATIONS, "counts": CONFUSION}
    write_json(folder / "classes.json", {"per_class": scores, "confusion": confusion})
    counts = {"sites": list(SITES), "relations": RELATIONS, "counts": COUNTS}
    write_json(folder / "label_counts.json", counts)
    (folder / "config.toml").write_text('[evaluation]\ntask = "classification"\ntarget = 0.3\n', "utf-8")
    return folder


def write_comparison(folder: Path, seeds: int = 3) -> dict[str, list[Path]]:
    """A comparison's run folders, by method."""
    return {
        method: [write_run(folder / method / f"seed-{seed}", method, seed) for seed in range(1, seeds + 1)]
        for method in QUALITY
    }


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a made-up run folder; keywords replace fields of its result."""
    return lambda name="run", **options: write_run(tmp_path / name, **options)


@pytest.fixture
def comparison(tmp_path: Path) -> dict[str, list[Path]]:
    """Six methods with two seeds each, below `tmp_path`."""
    return write_comparison(tmp_path, seeds=2)


@pytest.fixture
def classification(tmp_path: Path) -> Path:
    """A made-up run folder of a classification."""
    return write_classification(tmp_path / "run")
