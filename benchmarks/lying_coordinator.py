"""What does a coordinator that lies read at a site, before and after sites judge what they are sent?

    python benchmarks/lying_coordinator.py [--rounds 10] [--methods lazy-mil,fedavg,feded]

The federation of docs/deployment.md, with ten rounds. The coordinator asks one of its sites in three ways: a site
*as it was*, which takes any weights, answers a round's question three times, tells claims' exact values and calls
its sentences by their index; the site as it is, asked by a coordinator that *jumps* to weights made for reading, or
that goes there as far in each round as the site lets it (*patient*); and a site of an experiment in which sites
vouch for updates (*vouched*), sent the initial weights honestly, and then asked as by one that jumps. It attacks

- Lazy MIL by weights that write the relation, or the word at a chosen distance from the head, into claims' values;
- FedAvg by weights in which each filter responds to one word alone, so that its row of the update tells whether the
  word occurs;
- FedED by sentences of the site's text, planted in D_v before it was published, among others that the site lacks.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tomli_w

from fedrel.data.align import align, read_kb, write_jsonl
from fedrel.data.world import World, WorldConfig
from fedrel.deployment.earned_weights import EarnedWeights
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder, init_federation
from fedrel.deployment.publishing import publish_experiment
from fedrel.deployment.site_preparation import prepare_site
from fedrel.deployment.site_runner import SiteHost
from fedrel.deployment.submit import config_for_sites
from fedrel.federation.coordinator import Answer
from fedrel.federation.earned import Earned
from fedrel.federation.flower import codec
from fedrel.federation.flower.client import respond
from fedrel.federation.flower.host import Request
from fedrel.federation.messages import ModelTensors
from fedrel.federation.site import Site as InsideSite
from fedrel.federation.site_data import SiteData
from fedrel.tensors.weights import dense

WAYS = ("as it was", "jump", "patient", "vouched")
PLANTED = 100  # sentences of the site in D_v, and as many that it lacks
FIRST, LAST = -8, 14  # the distances from the head that are read


class Site:
    """One site of a federation, prepared for a method, and the coordinator that asks it."""

    def __init__(
        self,
        folder: Path,
        method: str,
        rounds: int,
        way: str,
        *,
        train_words: bool = False,
        vouched: bool = False,
    ) -> None:
        self.way, self.rounds = way, rounds
        self.vouched = vouched or way == "vouched"
        self.repeats = 3 if way == "as it was" else 1
        exact = {"levels": 0} if method != "fedavg" and way == "as it was" else {}
        experiment = {
            "method": method,
            "methods": {method: exact},
            "extractor": {
                "vectors": "vectors.txt",
                "word_dimension": 50,
                "filters": 100,
                "train_words": train_words,
            },
            "training": {"rounds": rounds, "fraction": 1.0, "epochs": 4, "learning_rate": 0.5},
            "privacy": {"vouched": self.vouched},
            "shared": {"knowledge_base": "kb.tsv", "dev": ["dev.jsonl"], "test": ["test.jsonl"]},
        }
        if method == "feded":
            experiment["shared"]["validation"] = ["validation.jsonl"]
        (folder / "experiment.toml").write_text(tomli_w.dumps(experiment))
        fed = folder / f"{method}-{way.replace(' ', '-')}"
        init_federation(fed, ["north", "south", "west"], "localhost")
        coordinator, self.folder = CoordinatorFolder(fed / "coordinator"), SiteFolder(fed / "sites" / "north")
        loaded = load_experiment(folder / "experiment.toml")
        publish_experiment(coordinator, loaded)
        coordinator.artefacts.rename(self.folder.artefacts)
        policy = {
            "coordinator": "localhost:9092",
            "data": {"files": [str(folder / "north.jsonl")], "format": "jsonl"},
            "allow": {
                "methods": [method],
                "may_leave": ["Holdings", "KeyedClaims", "Update", "Predictions"],
                "epochs": 4,
                "examples": 20,
                "repeats": self.repeats,
            },
            "privacy": {"levels": 0 if way == "as it was" else 16},
        }
        (self.folder.path / "site.toml").write_text(tomli_w.dumps(policy))
        prepare_site(self.folder)
        self.config = config_for_sites(loaded, ["north", "south", "west"])
        self.data = SiteData.load(self.folder.site_data, "pcnn")
        self.run = f"{self.config.digest()}-00000000"
        runner = SiteHost(self.folder.path).runner(self.run)
        self.initial = dict(runner.model.initial_weights())
        self.words = (runner.model.extractor.frozen() | self.initial)["words.weight"]
        self.vocabulary = self.data.inputs.lookup  # of the corpus' words
        self.answers, self.refused = 0, Counter[str]()
        self.now, self.own = self.initial, self.initial  # the weights sent last, and what came back
        self.earned = Earned.kept_in({})  # where sites vouch: what it can show honestly

    def ask(self, phase: str, round_: int, weights: Any, own: Any = None) -> Answer:
        """Ask for a phase of a round, with these weights, and what is for this site alone."""
        request = Request(
            self.run, self.config.model_dump(mode="json"), self.folder.prepared_with, 0, round_, phase
        )
        shared = {f"Model.weights/{name}": array for name, array in (weights or {}).items()}
        own = dict(own or {})
        if self.vouched:
            own |= {f"Earned.{name}": array for name, array in self.earned.pack().items()}
        content = codec.encode_request(request, codec.encode_arrays(shared), codec.encode_arrays(own))
        answer = codec.decode_answer(respond(lambda: SiteHost(self.folder.path), content))
        self.answers += answer.arrays is not None
        self.refused[answer.failure] += answer.arrays is None
        if answer.vouch:
            self.earned = self.earned.with_round(round_, {0: 1.0}, {0: answer.vouch})
        return answer

    def questions(self) -> list[tuple[int, int]]:
        """The rounds and repeats in which a question of one kind may be asked."""
        return [(round_, again) for round_ in range(1, self.rounds + 1) for again in range(self.repeats)]

    def towards(self, wanted: dict[str, Any], round_: int) -> dict[str, Any]:
        """The weights to send: those wanted, or, patiently, as near to them as the site lets them come."""
        if self.way in ("patient", "vouched") and round_ == 1:
            return self.initial
        if self.way != "patient":
            return wanted
        sent = {}
        for name, before in self.now.items():
            step, mine = wanted[name] - before, self.own[name] - before
            rows = np.linalg.norm(step.reshape(len(step), -1), axis=1)
            allowed = 4.9 * np.linalg.norm(mine.reshape(len(mine), -1), axis=1).max()
            step = step * np.minimum(1, allowed / np.maximum(rows, 1e-12)).reshape(-1, *[1] * (step.ndim - 1))
            length = 4.9 * np.linalg.norm(mine)
            sent[name] = (before + step * min(1, length / max(np.linalg.norm(step), 1e-12))).astype(
                np.float32
            )
        return sent

    def whole(self, sent: dict[str, Any], arrays: Any) -> dict[str, Any]:
        """The weights of an update, whole."""
        flat = {
            name.removeprefix("weights/"): one for name, one in arrays.items() if name.startswith("weights/")
        }
        shapes = {name: one.shape for name, one in sent.items()}
        return dense(sent, ModelTensors(rows=True).unpack(flat, shapes))

    def note(self, sent: dict[str, Any], update: Answer) -> None:
        """Remember what was sent, and what the site made of it."""
        if update.arrays is not None:
            self.now = sent
            self.own = {name: update.arrays[f"weights/{name}"] for name in sent}

    @property
    def about(self) -> dict[str, Any]:
        """How often the site answered, and how often it refused."""
        return {"answers": self.answers, "refusals": sum(self.refused.values())}


def lazy_mil(site: Site) -> dict[str, Any]:
    """Words, relations and whole facts that the values of claims tell."""
    corpus, rows = site.data.corpus, site.data.partition.rows(0)
    bags = site.data.bags(rows)
    generator = np.random.default_rng(1)
    by_word = generator.normal(size=50).astype(np.float32) / 100
    known = site.words @ by_word
    order = np.argsort(known)
    plan = ["relation", 0, *range(1, LAST), *range(-1, FIRST - 1, -1)]
    read: dict[bytes, dict[Any, int]] = {}
    truth: dict[bytes, int] = {}
    for (round_, _), what in zip(site.questions(), plan, strict=False):
        sent = site.towards(_relation(site) if what == "relation" else _reader(site, by_word, what), round_)
        claims = site.ask("claim_keyed", round_, sent)
        if claims.arrays is None:
            continue
        everything = {"Winners.index": np.sort(claims.arrays["index"])}
        if site.way in ("patient", "vouched"):
            site.note(sent, site.ask("train", round_, None, everything))
        model = SiteHost(site.folder.path).runner(site.run).model
        digests = InsideSite(model, 0, round_, {}).digests(bags.keys.astype(np.int32))
        truth |= {one.tobytes(): number for number, one in enumerate(digests)}
        for digest, value in zip(claims.arrays["digest"], claims.arrays["value"], strict=True):
            found = read.setdefault(digest.tobytes(), {})
            if what == "relation":
                found[what] = _nearest_relation(float(value), len(corpus.relations))
            else:
                response = np.log(max(1 / max(float(value), 1e-9) - len(corpus.relations) + 1, 1e-9)) - 0.5
                place = np.searchsorted(known[order], response)
                near = order[np.clip([place - 1, place], 0, len(order) - 1)]
                found[what] = int(near[np.argmin(np.abs(known[near] - response))])
    return site.about | _right(site, bags, read, truth)


def _right(site: Site, bags: Any, read: Any, truth: Any) -> dict[str, int]:
    """How much of what was read is true; of a bag's sentences, the one is meant that fits best."""
    corpus, lookup = site.data.corpus, site.vocabulary
    found = dict.fromkeys(("relations told", "words read", "of words", "facts named"), 0)
    for digest, told in read.items():
        if (bag := truth.get(digest)) is None:
            continue
        words = {at: word for at, word in told.items() if at != "relation"}
        texts = []
        for row in bags.rows[bags.bounds[bag] : bags.bounds[bag + 1]]:
            tokens = lookup[corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]]
            head, tail = int(corpus.head[row]), int(corpus.tail[row])
            hits = sum(
                0 <= head + at < len(tokens) and tokens[head + at] == word for at, word in words.items()
            )
            named = all(words.get(at - head) == tokens[at] for at in (head, tail))
            texts.append((hits, named, sum(0 <= head + at < len(tokens) for at in range(FIRST, LAST))))
        hits, named, length = max(texts)
        relation = told.get("relation") == bags.labels[bag]
        found["relations told"] += int(relation)
        found["words read"] += int(hits)
        found["of words"] += length
        found["facts named"] += int(relation and named and bags.labels[bag] > 0)
    return {"claims": len(bags), "facts": int((bags.labels > 0).sum()), **found}


def _relation(site: Site) -> dict[str, Any]:
    """Weights under which p(r|s) is another constant for every relation."""
    weights = {name: np.zeros_like(array) for name, array in site.initial.items()}
    weights["filters_bias"][0] = 1
    weights["classifier.weight"][:, 0] = np.linspace(-1, 1, len(weights["classifier.weight"]))
    return weights


def _nearest_relation(value: float, relations: int) -> int:
    logits = np.exp(np.linspace(-1, 1, relations))
    return int(np.argmin(np.abs(logits / logits.sum() - value)))


def _reader(site: Site, by_word: Any, distance: int) -> dict[str, Any]:
    """Weights under which a claim's value tells the word at a distance from the head, of all but `NA` pairs."""
    weights = {name: np.zeros_like(array) for name, array in site.initial.items()}
    width = weights["filters"].shape[1] // 3
    weights["filters"][0, width : width + 50] = by_word
    weights["filters"][0, width + 50] = 1
    reach = len(weights["head_positions"]) // 2
    weights["head_positions"][reach + distance, 0] = 5
    weights["filters_bias"][0] = -4.5  # below zero for all other words
    filters = len(weights["filters"])
    weights["classifier.weight"][0, [0, filters, 2 * filters]] = 1
    return weights


def fedavg(site: Site) -> dict[str, Any]:
    """Words that the rows of filters tell: those that occur once at the site, among as many that do not occur."""
    corpus = site.data.corpus
    rows = site.data.partition.rows(0)
    ids = np.concatenate(
        [site.vocabulary[corpus.tokens[corpus.starts[r] : corpus.starts[r + 1]]] for r in rows]
    )
    counts = np.bincount(ids, minlength=len(site.words))
    with_vector = np.linalg.norm(site.words, axis=1) > 0
    once, never = (np.flatnonzero((counts == n) & with_vector) for n in (1, 0))
    generator = np.random.default_rng(2)
    size = min(len(once), len(never))
    tested = generator.permutation(np.concatenate([once[:size], generator.permutation(never)[:size]]))
    found, asked = set(), set()
    for number, (round_, _) in enumerate(site.questions()):
        patient = site.way == "patient"  # goes for the same words in all rounds, and looks at the last
        words = tested[:100] if patient else tested[100 * number : 100 * number + 100]
        sent = site.towards(_detector(site, words), round_)
        update = site.ask("train", round_, sent)
        site.note(sent, update)
        if update.arrays is None or not len(words) or sent is site.initial:
            continue
        before, after = sent["filters"][: len(words)], update.arrays["weights/filters"][: len(words)]
        kept = (before * after).sum(1) / np.maximum(np.square(before).sum(1), 1e-12)  # by weight decay
        step = np.linalg.norm(after - kept[:, None] * before, axis=1)
        asked |= set(words.tolist())
        responds = set(words[step > (np.median(step) if patient else 1e-4)].tolist())
        found = responds if patient else found | responds
    right = len(found & set(once.tolist()))
    return site.about | {
        "words tested": len(asked),
        "that occur once": len(asked & set(once.tolist())),
        "found": len(found),
        "right": right,
    }


def _detector(site: Site, words: Any) -> dict[str, Any]:
    weights = {name: np.zeros_like(array) for name, array in site.initial.items()}
    width = weights["filters"].shape[1] // 3
    vectors = site.words[words]
    weights["filters"][: len(words), width : width + 50] = vectors / np.square(vectors).sum(1, keepdims=True)
    weights["filters_bias"] -= 0.75
    generator = np.random.default_rng(3)
    weights["classifier.weight"] += generator.normal(0, 0.5, weights["classifier.weight"].shape).astype(
        np.float32
    )
    return weights


def feded(site: Site) -> dict[str, Any]:
    """Whether predictions of D_v tell which of its sentences the site has, and how frequent its relations are."""
    sent = site.towards(site.initial, 1)
    answer = site.ask("predict", 1, sent)
    if answer.arrays is None:
        return site.about
    predictions = answer.arrays["probabilities"].astype(float)
    corpus, validation = site.data.corpus, site.data.validation
    labels = corpus.relation[validation]
    sure = predictions[np.arange(len(labels)), labels]
    member = np.arange(len(labels)) < PLANTED
    over = (sure[member][:, None] > sure[~member]).mean() + (
        sure[member][:, None] == sure[~member]
    ).mean() / 2
    shares = np.bincount(corpus.relation[site.data.partition.rows(0)], minlength=len(corpus.relations))
    correlation = np.corrcoef(predictions.mean(0), shares)[0, 1]
    return site.about | {
        "membership AUC": round(float(over), 3),
        "relation shares r": round(float(correlation), 3),
    }


@contextmanager
def trusting(way: str):
    """A site as it was."""
    if way != "as it was":
        yield
        return
    with (
        patch.object(EarnedWeights, "judge", lambda *_, **__: None),
        patch.object(SiteHost, "rules", lambda *_: None),
    ):
        yield


def write_text(folder: Path) -> None:
    """The text of docs/deployment.md; the site has all but some of it, and D_v has some of either."""
    world = World(WorldConfig(sentences=12_000, relations=4, noise=0.3, mean_length=14, styles=3))
    world.documents(folder / "text", files=1)
    world.kb(folder / "kb.tsv")
    words: Counter[str] = Counter()
    for split in ("dev", "test"):
        world.documents(folder / split, split=split, files=1)
        world.kb(folder / f"{split}.tsv", split=split)
        texts = sorted((folder / split).glob("*.txt"))
        write_jsonl(
            align(texts, read_kb(folder / f"{split}.tsv"), na_rate=0.5, seed=0), folder / f"{split}.jsonl"
        )
        for text in texts:
            words.update(text.read_text().lower().split())
    north = list(
        align(sorted((folder / "text").glob("*.txt"))[:1], read_kb(folder / "kb.tsv"), na_rate=0.1, seed=0)
    )
    random.Random(0).shuffle(north)
    write_jsonl(north[PLANTED:], folder / "north.jsonl")
    write_jsonl([*north[PLANTED : 2 * PLANTED], *north[:PLANTED]], folder / "validation.jsonl")
    for text in sorted((folder / "text").glob("*.txt")):
        words.update(text.read_text().lower().split())
    numbers = random.Random(0)
    lines = (f"{word} {' '.join(f'{numbers.gauss(0, 1):.3f}' for _ in range(50))}" for word in sorted(words))
    (folder / "vectors.txt").write_text("\n".join(lines))


def main() -> None:
    """Play all attacks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--methods", default="lazy-mil,fedavg,feded")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder)
        for method in chosen.methods.split(","):
            attack = {"lazy-mil": lazy_mil, "fedavg": fedavg, "feded": feded}[method]
            for way in WAYS[: 2 if method == "feded" else 4]:
                with trusting(way):
                    found[f"{method}, {way}"] = attack(Site(folder, method, chosen.rounds, way))
                print(f"{method:9}{way:10}", found[f"{method}, {way}"], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
