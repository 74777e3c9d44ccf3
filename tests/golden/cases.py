"""The configs whose results are recorded: every method, some compositions, and the options that matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tree = dict[str, Any]

WORKERS, FLOWER = "workers", "flower-simulation"  # all cases also run by `local`, which the others must equal

WORLD: Tree = {
    "data": {"corpus": "world", "sentences": 1000, "relations": 5, "noise": 0.4, "mean_length": 14},
    "partition": {"kind": "iid", "sites": 6},
    "extractor": {"word_dimension": 8, "filters": 12, "dropout": 0.3},
    "training": {"rounds": 2, "fraction": 0.67, "epochs": 2, "batch_size": 16, "learning_rate": 0.3},
    "evaluation": {"target": 0.15},
}
SKEWED: Tree = {  # over WORLD: sites with unlike labels, and each sentence's relation as the task
    "data": {"noise": 0.1, "na_share": 0.3},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "extractor": {"bias": False},
    "training": {"epochs": 5, "learning_rate": 0.5},
    "evaluation": {"task": "classification", "metric": "macro_f1"},
}
GAD: Tree = {
    "data": {
        "corpus": "files",
        "format": "gad",
        "root": "{inputs}/gad",
        "train": ["train.tsv"],
        "test": ["test.tsv"],
        "dev_fraction": 0.3,
    },
    "partition": {"sites": 5, "coordinator": 0.2},
    "extractor": {"kind": "transformer", "encoder": "{inputs}/encoder", "max_length": 48},
    "training": {
        "rounds": 2,
        "fraction": 0.6,
        "epochs": 2,
        "batch_size": 4,
        "optimiser": "adamw",
        "learning_rate": 1e-3,
        "warmup": 0.1,
        "clip": 1.0,
        "precision": "float32",  # on every processor
    },
    "evaluation": {"task": "classification"},
}
DOCUMENTS: Tree = {
    "data": {
        "corpus": "documents",
        "format": "docred",
        "root": "{inputs}/documents",
        "pool": ["pool.json"],
        "fractions": [0.6, 0.2, 0.2],
    },
    "partition": {"kind": "iid", "sites": 3},
    "extractor": {"kind": "document", "encoder": "{inputs}/encoder", "block_size": 8},
    "training": {
        "rounds": 2,
        "fraction": 0.67,
        "epochs": 1,
        "batch_size": 3,
        "learning_rate": 0.1,
        "precision": "float32",
    },
    "evaluation": {"task": "documents"},
}
HALVES: Tree = {"training": {"precision": "bfloat16"}}
NOISED: Tree = {"privacy": {"dp": {"level": "sentence", "noise": 0.5, "clip": 0.5}}}
COORDINATOR: Tree = {"partition": {"coordinator": 0.2}}
SITE_NOISE: Tree = {
    "extractor": {"train_words": False},
    "privacy": {"dp": {"level": "site", "noise": 0.5, "clip": 0.5}},
}
SUMMED: Tree = {"privacy": {"secure_sum": True}}
VECTORS: Tree = {"extractor": {"vectors": "{inputs}/vectors.txt", "train_words": False}}
RECIPE: Tree = {
    "training": {"learning_rate": 1e-3, "head_learning_rate": 3e-3, "warmup": 0.1, "linear_decay": True},
    "evaluation": {"tune_threshold": True},
}
ADAMW: Tree = {"training": {"optimiser": "adamw", "learning_rate": 0.01, "clip": 0.5, "warmup": 0.2}}


@dataclass(frozen=True)
class Case:
    """A config, and the engines that must come to the same result as `local`."""

    tree: Tree
    fast: tuple[str, ...] = ()  # engines that are tested always
    slow: tuple[str, ...] = ()  # engines that are tested with `-m slow`
    kernels: bool = True  # False: numba is not used
    needs: tuple[str, ...] = field(default=())  # modules without which the case is skipped

    def config(self, inputs: Path, engine: str) -> Tree:
        """The config with an engine, and with the folder of the input files in its paths."""
        filled: Tree = _filled(self.tree, inputs)
        return over(filled, {"engine": {"kind": engine, "workers": 2}})


def over(below: Mapping[str, Any], *above: Mapping[str, Any]) -> Tree:
    """A tree with others laid over it, key by key."""
    merged = dict(below)
    for tree in above:
        for key, value in tree.items():
            under = merged.get(key)
            merged[key] = over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _filled(value: Any, inputs: Path) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, inputs) for key, one in value.items()}
    return value.replace("{inputs}", str(inputs)) if isinstance(value, str) else value


def _case(base: Tree, method: str, *changes: Tree, processes: bool = True, **more: Any) -> Case:
    """A case. Workers that are processes need several seconds to start, so by default they are slow."""
    more = {("slow" if processes else "fast"): (WORKERS,), **more}
    return Case(over(base, {"method": method}, *changes), **more)


def _options(method: str, **options: Any) -> Tree:
    return {"methods": {method: options}}


def _sentences() -> dict[str, Case]:
    """PCNN on the built-in world."""
    skewed = over(WORLD, SKEWED)
    threads: dict[str, Any] = {"processes": False}
    accounted: dict[str, Any] = {"needs": ("dp_accounting", "cryptography", "Crypto")}
    return {
        **{name: _case(WORLD, name, **threads) for name in ("none", "one")},
        "ave": _case(WORLD, "ave"),
        "fedavg": _case(WORLD, "fedavg", **threads),
        "fedavg-uniform": _case(skewed, "fedavg", _options("fedavg", weighting="uniform"), **threads),
        "fedavg-quantity": _case(WORLD, "fedavg", {"partition": {"kind": "quantity"}}, **threads),
        "fedavg-shards": _case(WORLD, "fedavg", {"partition": {"kind": "shards"}}, **threads),
        "fedavg-vectors": _case(WORLD, "fedavg", VECTORS, {"extractor": {"train_words": True}}, **threads),
        "fedavg-adamw": _case(WORLD, "fedavg", ADAMW),
        "fedavg-noised": _case(
            WORLD, "fedavg", NOISED, processes=False, slow=(FLOWER,), needs=("dp_accounting",)
        ),
        "att-noised": _case(WORLD, "att", NOISED, VECTORS, needs=("dp_accounting",)),
        "fedavg-site-noise": _case(
            WORLD, "fedavg", SITE_NOISE, {"privacy": {"dp": {"adaptive_clip": 0.5}}}, **threads, **accounted
        ),
        "fedavg-summed": _case(WORLD, "fedavg", SUMMED, **threads, needs=("cryptography", "Crypto")),
        "fedavg-summed-noise": _case(WORLD, "fedavg", SITE_NOISE, SUMMED, **threads, **accounted),
        "fedatt": _case(WORLD, "fedatt", **threads),
        "fedavgm": _case(skewed, "fedavgm", **threads),
        "fedadam": _case(skewed, "fedadam", **threads),
        "lazy-mil": _case(WORLD, "lazy-mil", processes=False, slow=(FLOWER,)),
        "lazy-mil-keyed": _case(WORLD, "lazy-mil", _options("lazy-mil", keyed_triples=True), **threads),
        "lazy-mil-pooled": _case(WORLD, "lazy-mil", _options("lazy-mil", pooled_winners=True), **threads),
        "lazy-one": _case(WORLD, "lazy-one", **threads),
        "lazy-mil-fixed-words": _case(WORLD, "lazy-mil", VECTORS, **threads),
        "lazy-mil-without-kernels": _case(WORLD, "lazy-mil", kernels=False),
        "att": _case(WORLD, "att"),
        "att-without-kernels": _case(WORLD, "att", kernels=False),
        "att-ra": _case(WORLD, "att-ra"),
        "att+fedprox": _case(WORLD, "att+fedprox", _options("fedprox", mu=0.5)),
        "lazy-mil+fedprox": _case(WORLD, "lazy-mil+fedprox", _options("fedprox", mu=0.5)),
        "one+scaffold": _case(WORLD, "one+scaffold"),
        "centralised": _case(WORLD, "centralised", **threads),
        "local": _case(skewed, "local", **threads),
        "centralised-share": _case(WORLD, "centralised", _options("centralised", share=0.5), **threads),
        "centralised+one": _case(WORLD, "centralised+one", **threads),
        "feded": _case(WORLD, "feded", COORDINATOR, processes=False, slow=(FLOWER,)),
        "feded-bytes": _case(WORLD, "feded", COORDINATOR, _options("feded", upload="uint8"), **threads),
        "feded-probabilities": _case(
            WORLD, "feded", COORDINATOR, _options("feded", teacher="probs", temperature=2.0), **threads
        ),
        "validation-only": _case(WORLD, "validation-only", COORDINATOR, **threads),
        "fedprox": _case(skewed, "fedprox", _options("fedprox", mu=0.5)),
        "fedprox-fixed-words": _case(skewed, "fedprox", VECTORS, _options("fedprox", mu=0.5)),
        "scaffold": _case(skewed, "scaffold", fast=(WORKERS,), slow=(FLOWER,)),
        "scaffold-rate": _case(skewed, "scaffold", _options("scaffold", global_rate=0.5)),
        "feddyn": _case(skewed, "feddyn", _options("feddyn", alpha=0.1)),
        "moon": _case(skewed, "moon"),
        "moon+fedrs": _case(skewed, "moon+fedrs"),
        "fedrs": _case(skewed, "fedrs"),
        "fedlc": _case(skewed, "fedlc"),
        "fedcmc": _case(skewed, "fedcmc"),
        "fedcmc-minor": _case(skewed, "fedcmc", _options("fedcmc", vectors="minor")),
        "fedcmc-random": _case(skewed, "fedcmc", _options("fedcmc", vectors="random")),
    }


def _transformers() -> dict[str, Case]:
    """A tiny encoder on made-up sentences in GAD's form."""
    summed: Tree = {"extractor": {"pooling": "sum"}}
    largest: Tree = {"extractor": {"pooling": "max"}, "evaluation": {"task": "ranking"}}
    return {
        "transformer-fedavg": _case(GAD, "fedavg", slow=(WORKERS, FLOWER)),
        "transformer-bfloat16": _case(GAD, "fedavg", HALVES),
        "transformer-recipe": _case(GAD, "fedavg", RECIPE),
        "transformer-frozen": _case(GAD, "fedavg", {"extractor": {"frozen_layers": 1}}),
        "transformer-lora": _case(GAD, "fedavg", {"extractor": {"lora_rank": 2}}, needs=("peft",)),
        "transformer-noised": _case(
            GAD, "fedavg", {"extractor": {"lora_rank": 2}}, NOISED, needs=("peft", "dp_accounting")
        ),
        "transformer-sgd": _case(GAD, "scaffold", {"training": {"optimiser": "sgd", "learning_rate": 0.1}}),
        "transformer-feded": _case(GAD, "feded"),
        "transformer-fedcmc": _case(GAD, "fedcmc", summed),
        "transformer-moon": _case(GAD, "moon"),
        "transformer-lazy-mil": _case(GAD, "lazy-mil", largest),
    }


def _documents() -> dict[str, Case]:
    """A tiny encoder on made-up documents in DocRED's form."""
    windows: Tree = {"partition": {"kind": "entropy"}, "extractor": {"window": 32, "frozen_layers": 1}}
    return {
        "documents-fedavg": _case(DOCUMENTS, "fedavg"),
        "documents-bfloat16": _case(DOCUMENTS, "fedavg", HALVES),
        "documents-windows": _case(DOCUMENTS, "fedavg", windows),
        "documents-fedatt": _case(DOCUMENTS, "fedatt"),
        "documents-fedlcc": _case(DOCUMENTS, "fedlcc", slow=(WORKERS, FLOWER)),
        "documents-centralised": _case(DOCUMENTS, "centralised"),
        "documents-recipe": _case(DOCUMENTS, "fedlcc", {"training": {"optimiser": "adamw"}}, RECIPE),
    }


CASES: dict[str, Case] = {**_sentences(), **_transformers(), **_documents()}
