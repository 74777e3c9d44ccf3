"""Lazy MIL and its baselines on text that people judged: who finds the sentences that state their relation?

    FEDREL_DATA=FOLDER python benchmarks/judged.py noise results/lazy_mil-judged
    FEDREL_DATA=FOLDER python benchmarks/judged.py detect results/lazy_mil-judged --runs runs/reproduce --seeds 3
    FEDREL_DATA=FOLDER python benchmarks/judged.py mix results/lazy_mil-judged --runs runs/judged --seeds 2
    FEDREL_DATA=FOLDER python benchmarks/judged.py random results/lazy_mil-judged --runs runs/judged
    python benchmarks/judged.py page results/lazy_mil-judged

`noise` counts how many sentences do not state their relation, and fits how the odds of that grow with the number of
sentences about a triple: the world's `noise` and `popularity`.

`detect` takes the models of `fedrel reproduce lazy_mil/table2` and ranks the judged NYT sentences that are not
among their training sentences by p(r|s); `detect-minilm` those of `lazy_mil/table5`.

`mix` puts all judged NYT sentences, and half of Google's judged snippets, among the training sentences of the part
of NYT10 (no method sees a verdict) and trains every method anew. It reports how much of the judged text that a
method trained on states its relation, and how well its model ranks that text and the other half of the snippets.
Sentences whose pair is in dev or test are left out. `random` says how clean the text would be if the same sites, in
the same rounds, chose at random, for `mix` and for the made-up text of demo and of results/world-noise. `page`
writes README.md.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedrel.cli.progress import watching
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.load import dataset
from fedrel.data.partition import divide
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import JudgedUnits, difference, interval
from fedrel.federation.rounds import draw
from fedrel.inference.model import Model, load_model
from fedrel.runs.compare import finished, is_finished
from fedrel.runs.folder import read_json
from fedrel.runs.plan import Plan
from fedrel.runs.records import Result
from fedrel.runs.reproduction_record import Reproduction
from fedrel.runs.run_notes import environment
from judged_page import DETECTORS, page
from judged_text import DEGREES, SETS, judged, mixed_config, names, plain, pool

PRESET = "lazy_mil/nyt10-part"
METHODS = ("none", "one", "ave", "att", "att-ra", "lazy-mil", "lazy-one")
ROUNDS = 600
MOST_SEEDS = 20
WORLD = Path("results/world-noise")


def units(model: Model, sentences: Sequence[Instance]) -> JudgedUnits:
    """p(r|s) of each sentence, by its triple."""
    number = {relation: place for place, relation in enumerate(model.relations)}
    probability = model.sentence_probabilities(sentences)
    label = [number[one.relation] for one in sentences]
    triples = [(one.head.name, one.relation, one.tail.name) for one in sentences]
    known = {triple: place for place, triple in enumerate(dict.fromkeys(triples))}
    return JudgedUnits(
        np.array([known[triple] for triple in triples]),
        np.array([bool(one.expresses) for one in sentences]),
        probability[np.arange(len(label)), label].astype(np.float64),
    )


Models = dict[str, dict[int, Path]]
"""The runs of each method, by seed."""


def ranked(models: Models, sentences: Sequence[Instance]) -> dict[str, Any]:
    """The area under the ROC curve by method with its interval, and its difference from `one` over common seeds."""
    if "one" not in models:
        raise UserError("no run of `one` to compare with", hint="train it first")
    known = load_model(next(iter(models["one"].values()))).relations
    asked = [one for one in sentences if one.relation in known]
    found = {
        name: {seed: units(sentence_model(run), asked) for seed, run in runs.items()}
        for name, runs in models.items()
    }
    stating = sum(bool(one.expresses) for one in asked)
    report: dict[str, Any] = {"sentences": len(asked), "stating": stating, "methods": {}}
    for name, runs in found.items():
        beside = found["one"]
        common = sorted(runs.keys() & beside.keys())
        report["methods"][name] = {
            "auc": interval(list(runs.values()), "detection").model_dump(),
            "beside_one": difference(
                [runs[seed] for seed in common], [beside[seed] for seed in common], "detection"
            ).model_dump(),
            "seeds": len(runs),
        }
    return report


def sentence_model(run: Path) -> Model:
    """A run's model."""
    found = load_model(run)
    assert isinstance(found, Model)
    return found


def noise() -> dict[str, Any]:
    """Of each set: the share of sentences that do not state their relation, by the size of the triple's bag."""
    report = {}
    for name in SETS:
        sentences = judged(name)
        triples = Counter((*names(one), one.relation) for one in sentences)
        size = np.array([triples[(*names(one), one.relation)] for one in sentences])
        noisy = np.array([not one.expresses for one in sentences])
        bags = {
            label: {"sentences": int(chosen.sum()), "noise": float(noisy[chosen].mean())}
            for label, low, high in (("1", 1, 1), ("2", 2, 2), ("3-4", 3, 4), ("5+", 5, size.max()))
            if (chosen := (size >= low) & (size <= high)).any()
        }
        power, error = exponent(size, noisy) if size.max() > 1 else (None, None)
        report[name] = {
            "sentences": len(sentences),
            "triples": len(triples),
            "noise": float(noisy.mean()),
            "bags": bags,
            "power": power,
            "standard_error": error,
        }
    return report


def exponent(size: np.ndarray, noisy: np.ndarray) -> tuple[float, float]:
    """The power of the bag size that the odds of noise grow with, and its standard error: logistic regression."""
    x = np.stack([np.ones(len(size)), np.log(size)], axis=1)
    weights = np.zeros(2)
    for _ in range(50):  # Newton's method
        p = 1 / (1 + np.exp(-x @ weights))
        hessian = (x * (p * (1 - p))[:, None]).T @ x
        weights += np.linalg.solve(hessian, x.T @ (noisy - p))
    return float(weights[1]), float(np.sqrt(np.linalg.inv(hessian)[1, 1]))


def detect(part: str, runs: Path, seeds: int) -> dict[str, Any]:
    """A reproduced table's models on judged sentences that they were not trained on."""
    table, column = DETECTORS[part]
    plan = Plan(f"lazy_mil/{table}", Path(f"results/lazy_mil-{table}"), runs, seeds, [column])
    models: Models = {}
    for job in plan.jobs():
        if plan.finished(job) and (job.folder / "model").exists():  # not where only the page keeps it
            models.setdefault(job.row, {})[job.seed] = job.folder
    data = dataset(load_config(PRESET).data)
    corpus = data.corpus.require(SentenceCorpus)
    trained = {plain(corpus.text_of(row)) for row in data.train.tolist()}
    report = {}
    for name in (name for name in SETS if name != DEGREES):
        sentences = judged(name)
        fresh = [one for one in sentences if plain(one.text) not in trained]
        report[name] = {"among_training": len(sentences) - len(fresh), **ranked(models, fresh)}
    return report


def mix(folder: Path, seeds: int, methods: Sequence[str], rounds: int) -> dict[str, Any]:
    """Train these methods on the part of NYT10 with judged text among it; what all finished runs there show.

    So methods may have different numbers of seeds: train some with many, then others with few.
    """
    config = load_config(PRESET)
    files, mixed, held = pool(config, folder)
    with watching(quiet=False) as watch:
        for seed, method in product(range(1, seeds + 1), methods):
            asked = mixed_config(config, files, method, seed, rounds)
            finished(asked, folder / method / f"seed-{seed}", watch(f"{method}, seed {seed}", asked))
    models: Models = {}
    precision: dict[str, list[float]] = {}
    test: dict[str, list[float]] = {}
    lasted: dict[str, dict[str, int]] = {}
    for method, seed in product(METHODS, range(1, MOST_SEEDS + 1)):
        run = folder / method / f"seed-{seed}"
        if is_finished(mixed_config(config, files, method, seed, rounds), run):
            result: Result = read_json(Result, run / "result.json")
            models.setdefault(method, {})[seed] = run
            precision.setdefault(method, []).append(result.selection_precision or 0.0)
            test.setdefault(method, []).append(result.metrics["auc"])
            lasted.setdefault(method, {})[str(seed)] = result.rounds
    stating = [bool(one.expresses) for part in mixed.values() for one in part]
    return {
        "rounds": rounds,
        "lasted": lasted,
        "judged_in_training": {
            name: {"sentences": len(part), "stating": sum(bool(one.expresses) for one in part)}
            for name, part in mixed.items()
        },
        "share_stating": fmean(stating),
        "selection_precision": precision,
        "test_auc": test,
        "trained_on": {name: ranked(models, part) for name, part in mixed.items()},
        "held_out": {DEGREES: ranked(models, held)},
    }


def by_chance(config: Config) -> dict[str, float]:
    """The selection precision of three methods, round by round, if each of a bag's sentences were as likely chosen.

    A sentence of a bag of n has the weight 1/n. A bag is what a method chooses one sentence of: with ONE a triple's
    sentences at a site, with Lazy MIL those at all active sites; with NONE every sentence is one.
    """
    data = dataset(config.data)
    corpus = data.corpus.require(SentenceCorpus)
    parts = divide(config.partition, corpus, data.train, config.seed)
    found: dict[str, list[float]] = {"none": [], "one": [], "lazy-mil": []}
    for round_ in range(1, config.training.rounds + 1):
        sites = draw(parts.sizes, config.training.fraction, config.seed, round_).sites
        rows = np.concatenate([parts.rows(site) for site in sites])
        site = np.repeat(sites, [len(parts.rows(site)) for site in sites])
        triple, truth = corpus.triple[rows].astype(np.int64), corpus.expresses[rows]
        facts = corpus.relation[rows] >= int(corpus.has_na)
        bags = {"none": np.arange(len(rows)), "one": triple * parts.sites + site, "lazy-mil": triple}
        for method, bag in bags.items():
            _, place, size = np.unique(bag, return_inverse=True, return_counts=True)
            weight = facts / size[place]
            found[method].append(float(weight[truth == 1].sum() / weight[truth >= 0].sum()))
    return {method: fmean(values) for method, values in found.items()}


def random_choice(folder: Path, mixed: dict[str, Any]) -> dict[str, Any]:
    """Of each text whose truth is known: how clean was what methods chose, and what random choice would be."""
    config, demo = load_config(PRESET), load_config("demo")
    files, *_ = pool(config, folder)
    precision = mixed["selection_precision"]
    asked = [
        mixed_config(config, files, "one", int(seed), rounds)
        for seed, rounds in mixed["lasted"]["lazy-mil"].items()
    ]
    rows = json.loads(Path("results/demo/comparison.json").read_text())["rows"]
    return {
        "judged sentences": beside_chance(precision, asked),
        "demo": beside_chance({row["method"]: [row["selection_precision"]] for row in rows}, [demo]),
        **{f"made up, {column}": one for column, one in on_the_world().items()},
    }


def beside_chance(chosen: dict[str, list[float]], configs: Sequence[Config]) -> dict[str, Any]:
    """The mean selection precision of each method, and by random choice in the rounds of these configs."""
    random = [by_chance(config) for config in configs]
    return {
        "chosen": {method: fmean(values) for method, values in chosen.items()},
        "random": {method: fmean(one[method] for one in random) for method in random[0]},
    }


def on_the_world() -> dict[str, dict[str, Any]]:
    """The same of every column of the page of the built-in world, over its seeds."""
    page: Reproduction = read_json(Reproduction, WORLD / "reproduction.json")
    plan = Plan(page.name, WORLD, Path("runs"), page.seeds)
    jobs = [(job, run) for job in plan.jobs() if (run := plan.finished(job)) is not None]
    report: dict[str, dict[str, Any]] = {}
    for note in page.columns:
        own = [(job, run) for job, run in jobs if job.column == note.name]
        chosen: dict[str, list[float]] = {}
        for job, run in own:
            chosen.setdefault(job.row, []).append(run.result.selection_precision or 0.0)
        lazy = [
            job.config.with_settings({"training.rounds": run.result.rounds})
            for job, run in own
            if job.row == "lazy-mil"
        ]
        report[note.name] = beside_chance(chosen, lazy)
    return report


def main() -> None:
    """Run one part and write it into judged.json, then the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("noise", *DETECTORS, "mix", "random", "page"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    record = asked.out / "judged.json"
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"commands": []}
    if asked.part != "page":
        if asked.part == "noise":
            found["noise"] = noise()
        elif asked.part in DETECTORS:
            found[asked.part] = detect(asked.part, asked.runs, asked.seeds)
        elif asked.part == "random":
            found["random"] = random_choice(asked.runs, found["mix"])
        else:
            found["mix"] = mix(asked.runs, asked.seeds, asked.methods.split(","), asked.rounds)
        command = f"python benchmarks/judged.py {asked.part} OUT"
        if asked.part != "noise":
            command += " --runs RUNS"
        if asked.part not in ("noise", "random"):
            command += f" --seeds {asked.seeds}"
        if asked.part == "mix":
            command += f" --methods {asked.methods} --rounds {asked.rounds}"
        others = [one for one in found["commands"] if asked.part == "mix" or f" {asked.part} " not in one]
        found["commands"] = list(dict.fromkeys([*others, command]))
        found.setdefault("commits", {})[asked.part] = environment("", "float32").commit
        asked.out.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(found, indent=1) + "\n")
    reading = asked.out / "reading.md"
    text = page(found, reading.read_text(encoding="utf-8") if reading.exists() else "")
    (asked.out / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
