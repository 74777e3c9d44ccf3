"""One method under one defence: train some rounds, record what crosses, attack it, and keep what an attack got.

What attacks got are records, in a file for each method under each defence.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.evaluation.outcome import Record
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.messages import RefusedError
from fedrel.federation.runner import Runner
from fedrel.leaks.crossings import AttackedRound, RecordingEngine, ShadowSites, claims_in, in_cohorts, views
from fedrel.leaks.fact_leaks import (
    FoundShares,
    KnownFacts,
    correlations,
    found_facts,
    found_shares,
    precision_and_recall_of_facts,
)
from fedrel.leaks.leak_defences import LeakDefence, noise_settings
from fedrel.leaks.leak_texts import LeakTexts, divided, with_shadows
from fedrel.leaks.membership_leaks import Guessed, Likelihoods, auc, guessed_members, hits_at
from fedrel.leaks.token_leaks import Follows, FoundTokens, found_tokens, mean_of
from fedrel.leaks.word_leaks import WORDS, FoundWords, Vocabulary, named_words, precision_and_recall
from fedrel.methods.by_name import check_protection, method
from fedrel.methods.claims import Claims, KeyedClaims
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import Preparation, prepare
from fedrel.runs.round_outcome import LostRoundError
from fedrel.runs.train import Session
from fedrel.tensors.weights import Weights

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]

_PREPARED: dict[str, Preparation] = {}  # of the last cell: reading vectors takes as long as an attack

NO_WEIGHTS = "no weights leave a site"
NO_WORDS = "neither words nor layers that read them are trained"
NO_ENCODER = "the extractor is no transformer"
NO_CLAIMS = "no claims about facts are sent"


class WordLeak(Record):
    """Telling words: those that at most one site in ten has."""

    precision: float
    recall: float
    guessing: float
    """The precision of naming as many at random."""
    words: float
    """How many a site has, on average."""


class MembershipLeak(Record):
    """Whether a sentence was trained on."""

    auc: float
    tpr_at_1_percent: float
    tpr_at_0_1_percent: float
    """The share of members that are found while 1 or 0.1 % of the others are taken for members."""
    members: int
    outsiders: int


class CountLeak(Record):
    """Each relation's share at a site: Pearson's r between found and true."""

    correlation: float
    beyond_average: float
    """Of the differences from an average site, which is what nobody knew before."""
    guessing: float
    """The correlation of one who takes every site for the average one."""


class FactLeak(Record):
    """Facts that a site's text mentions."""

    precision: float
    recall: float
    guessing: float
    """The precision of naming as many of those facts that the attacker's own text mentions most."""
    facts: int


class TokenLeak(Record):
    """Tokens of a site's sentences, read from a transformer's update."""

    f1: float
    rouge_1: float | None = None
    rouge_2: float | None = None
    """Of the sentences that the attacker puts together of what it read, against those that they are nearest to."""


class LeakCell(Record):
    """One method under one defence: what each attack got, or why it got nothing."""

    method: str
    defence: str
    settings: dict[str, Any]
    config: str
    rounds: int
    seen: str
    """`answers` of single sites, or their `sum`."""
    attacked: int = 0
    """How many answers of sites were attacked, over all rounds."""
    shadows: int = 0
    words: WordLeak | None = None
    tokens: TokenLeak | None = None
    membership: MembershipLeak | None = None
    counts: CountLeak | None = None
    facts: FactLeak | None = None
    epsilon: float | None = None
    """With differential privacy: ε that these rounds cost, of the site that they cost most."""
    why_not: dict[str, str] = {}
    """By attack, why there is nothing to attack."""
    refused: str | None = None
    """Why the method cannot have this defence."""
    stopped: str | None = None
    """Why the rounds could not go on."""
    chosen: dict[str, str] = {}
    """By attack, the settings that told shadow sites' text best, and in how many rounds each was taken."""
    dev: dict[str, float] = {}
    """The config's metric after these rounds."""
    seconds: float = 0.0
    commit: str | None = None


ATTACKS = {
    "words": "which telling words (those that at most one site in ten has) a site's text has: precision, recall",
    "tokens": "which tokens are in a site's sentences, by the span check of DAGER: F1; ROUGE-1 and -2 "
    "of the sentences made of them",
    "membership": "whether a sentence was trained on: AUC, and the share of members found at 1 % and at 0.1 % "
    "false alarms",
    "counts": "how frequent each relation is at a site: r of the differences from an average site, and r of all",
    "facts": "which facts a site's text mentions: precision, recall",
}


def attacked_cell(
    config: Config, cell: LeakCell, defence: LeakDefence, say: Say = lambda _: None
) -> LeakCell:
    """Train `cell.rounds` rounds of a config, in which the defence's settings are set already, and attack each.

    Noise, which depends on the sites, is set here.
    """
    started = time.monotonic()
    settings = {"training.rounds": cell.rounds, "evaluation.every": cell.rounds, "case_study": 0}
    config = config.with_settings({**settings, "engine.kind": "local"})
    ready = prepared(config)
    active = max(int(config.training.fraction * ready.site_data.partition.sites + 1e-9), 1)
    texts = divided(ready, 2 * active, config.seed)
    if defence.epsilon is not None:
        sizes = np.array([len(rows) for rows in texts.members])
        noise = noise_settings(config, defence, sizes, cell.rounds)
        config = config.with_settings(noise)
        cell = cell.model_copy(update={"settings": cell.settings | noise})
    try:
        chosen = method(config.method, config.methods)
        check_protection(chosen, config)
    except UserError as error:  # a defence that a method cannot have is a result, too
        return cell.model_copy(update={"refused": error.problem})
    with tempfile.TemporaryDirectory() as states:
        try:
            attack = _Attack(config, with_shadows(ready, texts), texts, active, Path(states))
            for number in range(1, cell.rounds + 1):
                attack.next_round()
                say(f"round {number} of {cell.rounds} attacked")
        except RefusedError as refusal:
            return cell.model_copy(update={"stopped": f"the model is ruined: {refusal}"})
        except (LostRoundError, UserError) as error:
            return cell.model_copy(update={"stopped": error.problem})
        found = attack.results()
    found |= {"seconds": round(time.monotonic() - started, 1), "shadows": len(texts.shadows)}
    return cell.model_copy(update=found)


def prepared(config: Config) -> Preparation:
    """The data of a config; those of the cell before, if it read the same."""
    tree = config.model_dump(mode="json", include={"seed", "data", "partition", "extractor"})
    for key in ("train_words", "frozen_layers", "lora_rank"):  # of the network, not of what it reads
        tree["extractor"].pop(key, None)
    read = json.dumps(tree, sort_keys=True)
    if read not in _PREPARED:
        _PREPARED.clear()
        _PREPARED[read] = prepare(config)
    return _PREPARED[read]


def sees_sums(config: Config) -> bool:
    """Whether the attacker sees the sum of the sites' answers only."""
    return config.privacy.secure_sum or config.privacy.site_noise is not None


class _Attack:
    """The rounds of a run, each attacked when it is over."""

    def __init__(
        self, config: Config, ready: Preparation, texts: LeakTexts, active: int, states: Path
    ) -> None:
        self._config, self._texts, self._active = config, texts, active
        self._summed = sees_sums(config)
        self._data = ready.site_data
        parts = self._data.partition
        without = {"privacy.dp": None} if config.privacy.site_noise else {}  # it is added to sums
        open_config = config.with_settings({"privacy.secure_sum": False, **without})
        self._own = new_runner(open_config, self._data, states / "shadows")
        numbers = range(texts.sites, parts.sites)
        self._shadows = ShadowSites(self._own, numbers)
        runner = new_runner(config, self._data, states / "sites")
        self._engine = RecordingEngine(
            LocalEngine(runner, config.engine.workers), parts.sizes[: texts.sites], texts.corpus.triple_count
        )
        self._session = Session(config, ready, self._engine, None)
        self._words = _vocabulary(self._own, config, self._data.partition.rows, texts)
        self._has_encoder = extractor_kind(config.extractor.kind).has_encoder
        self._found_words: list[FoundWords] = []
        self._found_tokens: list[FoundTokens] = []
        self._guessed: list[Guessed] = []
        self._shares: list[FoundShares] = []
        self._claims: dict[int, list[tuple[int, Claims | KeyedClaims]]] = {}
        self._values: dict[int, Floats] = {}  # by round, p(r|s) of the attacker's own sentences
        self._why: dict[str, str] = {}
        self._attacked = 0
        self._epsilon: float | None = None
        self._dev: dict[str, float] = {}

    def next_round(self) -> None:
        """Train a round and attack it."""
        base = self._session.checkpoint().weights
        record = self._session.next_round()
        self._dev = {name: value for name, value in (record.dev or {}).items() if value is not None}
        if record.privacy is not None:
            self._epsilon = record.privacy.epsilon
        requests, after = self._engine.taken(), self._session.checkpoint().weights
        seen = views(requests, base, after, summed=self._summed)
        if not any(view.sites for view in seen):  # a round may have drawn nobody
            return
        single = self._shadows.views(record.round, requests, base, self._active)
        noise = self._config.privacy.site_noise
        clip = noise.clip if noise else None
        shadows = in_cohorts(single, self._active, base, clip) if self._summed else single
        self._attack(AttackedRound(record.round, base, seen, shadows, single, claims_in(requests)))

    def _attack(self, round_: AttackedRound) -> None:
        texts = self._texts
        self._attacked += sum(len(view.sites) for view in round_.views)
        words = named_words(round_, self._words)
        if words is None:
            self._why["words"] = NO_WORDS if round_.views[0].weights else NO_WEIGHTS
        self._found_words += words or []
        tokens: list[FoundTokens] | str = NO_ENCODER
        if self._has_encoder:
            tokens = found_tokens(round_, self._own.model.extractor, self._sentences, self._follows())
        if isinstance(tokens, str):
            self._why["tokens"] = tokens
        else:
            self._found_tokens += tokens
        known = Likelihoods(round_, texts, self._data.validation, self._score)
        self._guessed.append(guessed_members(round_, texts, known))
        relation_of = texts.corpus.triples[:, 1]
        self._shares += found_shares(round_, self._shares_of, relation_of)
        for site, claims in round_.claims.items():
            self._claims.setdefault(site, []).append((round_.number, claims))
        if round_.claims:
            rows = texts.reference
            self._values[round_.number] = _of_labels(
                self._score(round_.base, rows), texts.corpus.relation[rows]
            )

    def results(self) -> dict[str, Any]:
        """What all attacks got over all rounds."""
        found: dict[str, Any] = {"why_not": self._why, "attacked": self._attacked}
        found |= {"dev": self._dev, "epsilon": self._epsilon}
        if self._found_words:
            precision, recall, guessing = precision_and_recall(self._found_words)
            mean = float(np.mean([one.there for one in self._found_words]))
            found["words"] = WordLeak(precision=precision, recall=recall, guessing=guessing, words=mean)
        if self._found_tokens:
            f1, rouge_1, rouge_2 = mean_of(self._found_tokens)
            found["tokens"] = TokenLeak(f1=f1, rouge_1=rouge_1, rouge_2=rouge_2)
        found["chosen"] = {
            "membership": _taken(
                [f"a {one.setting.inside:g}, gamma {one.setting.gamma:g}" for one in self._guessed]
            ),
            "counts": _taken([one.sign for one in self._shares]),
        }
        scores = np.concatenate([one.scores for one in self._guessed])
        member = np.concatenate([one.member for one in self._guessed])
        found["membership"] = MembershipLeak(
            auc=auc(scores, member),
            tpr_at_1_percent=hits_at(scores, member, 0.01),
            tpr_at_0_1_percent=hits_at(scores, member, 0.001),
            members=int(member.sum()),
            outsiders=int((~member).sum()),
        )
        whole, beyond, guessing = correlations(self._shares)
        found["counts"] = CountLeak(correlation=whole, beyond_average=beyond, guessing=guessing)
        facts = self._facts()
        if facts is None:
            self._why["facts"] = NO_CLAIMS
        return found | {"facts": facts}

    def _facts(self) -> FactLeak | None:
        corpus, rows = self._texts.corpus, self._texts.reference
        is_fact = corpus.triples[:, 1] > 0 if corpus.has_na else np.ones(corpus.triple_count, bool)
        triple, place, sentences = np.unique(corpus.triple[rows], return_inverse=True, return_counts=True)
        best = {n: _largest(value, place, len(triple)) for n, value in self._values.items()}
        relation = corpus.triples[triple, 1].astype(np.int64)
        known = KnownFacts(triple.astype(np.int64), relation, sentences, best)
        facts = {site: corpus.triple[self._texts.members[site]].astype(np.int64) for site in self._claims}
        levels = getattr(method(self._config.method, self._config.methods), "levels", 0)
        found = found_facts(self._claims, facts, is_fact, known, levels)
        if found is None:
            return None
        precision, recall, guessing = precision_and_recall_of_facts(found)
        there = sum(one.there for one in found)
        return FactLeak(precision=precision, recall=recall, guessing=guessing, facts=there)

    def _score(self, weights: Weights, rows: Ints) -> Floats:
        return self._own.score(weights, "none", self._texts.bags(rows)).astype(np.float64)

    def _sentences(self, site: int) -> list[Ints]:
        return self._pieces(self._data.partition.rows(site))

    def _follows(self) -> Follows:
        return Follows(self._pieces(self._texts.reference))

    def _pieces(self, rows: Ints) -> list[Ints]:
        batch = self._own.model.batch(self._texts.bags(rows))
        words, starts = (tensor.cpu().numpy() for tensor in (batch.words, batch.starts))
        return np.split(words, starts[1:-1])

    def _shares_of(self, site: int) -> Floats:
        return self._texts.shares(self._data.partition.rows(site))


def _vocabulary(runner: Runner, config: Config, rows: Callable[[int], Ints], texts: LeakTexts) -> Vocabulary:
    """The words of a corpus as rows of the model's table."""
    model = runner.model
    shift = int(
        extractor_kind(config.extractor.kind).has_encoder
    )  # a trained table of pieces begins with a gap
    fixed = model.extractor.frozen().get(WORDS)
    size = (
        runner.shapes[WORDS][0] if WORDS in runner.shapes else shift + len(fixed if fixed is not None else [])
    )
    kept: dict[int, Ints] = {}

    def of_site(site: int) -> Ints:
        if site not in kept:
            kept[site] = np.unique(model.batch(texts.bags(rows(site))).words.cpu().numpy()) + shift
        return kept[site]

    return Vocabulary(size, None if shift else fixed, of_site)  # only a PCNN's filters respond to them


def _taken(settings: Sequence[str]) -> str:
    """Which settings were taken, the most frequent first."""
    counts = Counter(settings)
    return "; ".join(f"{one} ({count} of {len(settings)})" for one, count in counts.most_common())


def _of_labels(probabilities: Floats, labels: Sequence[int] | npt.NDArray[np.int32]) -> Floats:
    return probabilities[np.arange(len(probabilities)), labels]


def _largest(values: Floats, place: Ints, count: int) -> Floats:
    found = np.zeros(count)
    np.maximum.at(found, place, values)
    return found
