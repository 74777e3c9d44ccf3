"""Attacks of a coordinator that lies: each succeeds where a site believes it, and fails where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from fedrel.config.schema import Config
from fedrel.deployment.audit import check
from fedrel.deployment.earned_weights import EarnedWeights
from fedrel.deployment.site_runner import ResidentHost, ResidentSite, SiteHost
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.flower import codec
from fedrel.federation.flower.client import respond
from fedrel.federation.flower.host import Request
from fedrel.federation.site_data import SiteData
from fedrel.methods.by_name import methods
from tests.federation_e2e.conftest import Called, Local, experiment
from tests.federation_e2e.dividing import ARTEFACTS, prepared_for
from tests.federation_e2e.grid import in_round
from tests.federation_e2e.testbed import rounds, same

RUN = f"{'0' * 32}-00000000"
QUICK = {"engine__deadline": 0.5}
KEYED = {"methods__lazy-mil__keyed_triples": True}
LEVELS = {"methods__lazy-mil__levels": 16}


class Liar:
    """A coordinator that asks the site `north` whatever it wants."""

    def __init__(self, called: Called, config: Config) -> None:
        self.folder, self.config = called.bed.site("north"), config
        prepared_for(config, self.folder.path)
        self.data = SiteData.load(self.folder.site_data, config.extractor.kind)
        self.site = ResidentSite(self.folder.path)

    def asks(self, phase: str, round_: int = 1, run: str = RUN, own: Any = None, **weights: Any) -> Answer:
        request = Request(run, self.config.model_dump(mode="json"), ARTEFACTS, 0, round_, phase)
        shared = {f"Model.weights/{name}": array for name, array in weights.items()}
        content = codec.encode_request(request, codec.encode_arrays(shared), codec.encode_arrays(own or {}))
        return codec.decode_answer(respond(lambda: ResidentHost(self.folder.path, self.site), content))

    @cached_property
    def initial(self) -> dict[str, Any]:
        return dict(SiteHost(self.folder.path).runner(RUN).model.initial_weights())

    def by_relation(self) -> dict[str, Any]:
        """Weights under which p(r|s) is another constant for every relation."""
        weights = {name: np.zeros_like(array) for name, array in self.initial.items()}
        weights["filters_bias"] += 1
        weights["classifier.weight"] += np.linspace(-1, 1, len(weights["classifier.weight"]))[:, None] / 9
        return weights

    @cached_property
    def relations(self) -> Any:
        """Of every claim, in the order of the site's own triples."""
        return self.data.bags(self.data.partition.rows(0)).labels

    def note(self) -> str:
        return check(self.folder.audit).lines[-1].entry.note


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site as it was: it takes any weights, and calls its sentences by their index."""
    monkeypatch.setattr(EarnedWeights, "judge", lambda *given, **named: None)
    monkeypatch.setattr(SiteHost, "rules", lambda self, run: None)


def told_relations(claims: Any, truth: Any) -> float:
    """How many relations the values tell: claims with one value are guessed to have one relation."""
    values = np.round(claims["value"], 5)
    right = sum(np.bincount(truth[values == one]).max() for one in np.unique(values))
    return float(right / len(truth))


def test_one_question_told_the_relation_of_every_fact(called: Called, trusting: None):
    liar = Liar(called, experiment(**QUICK))
    answer = liar.asks("claim", **liar.by_relation())
    assert answer.arrays is not None
    assert told_relations(answer.arrays, liar.relations) == 1.0


def test_made_up_weights_are_refused_by_name(called: Called):
    liar = Liar(called, experiment(**QUICK))
    answer = liar.asks("claim", **liar.by_relation())
    assert answer.failure == "refused the request: round 1's weights are not those of the published seed"
    assert "from what the seed gives" in liar.note()
    assert liar.asks("claim", **liar.initial).arrays is not None
    answer = liar.asks("claim", 2, **liar.by_relation())
    assert answer.failure.startswith("refused the request: the global weights moved otherwise than training")
    entry = check(liar.folder.audit).lines[-1].entry
    assert entry.asked is not None and entry.asked.norms["filters"] == 0


def test_weights_in_the_sites_own_message_are_judged_too(called: Called):
    liar = Liar(called, experiment("fedavg", **QUICK))
    own = {f"Model.weights/{name}": array for name, array in liar.by_relation().items()}
    assert "round 1's weights" in liar.asks("train", own=own).failure


def test_a_new_run_or_a_later_round_does_not_help(called: Called):
    liar = Liar(called, experiment("fedavg", training__rounds=5, **QUICK))
    assert "moved otherwise" in liar.asks("train", 5, **liar.by_relation()).failure
    assert (
        "moved otherwise" in liar.asks("train", 2, run=f"{'1' * 32}-00000000", **liar.by_relation()).failure
    )


def test_even_under_such_weights_ranks_tell_no_relation(called: Called, monkeypatch: pytest.MonkeyPatch):
    """NA pairs are not told from facts either: every relation's values are distributed alike."""
    monkeypatch.setattr(EarnedWeights, "judge", lambda *given, **named: None)
    liar = Liar(called, experiment(**QUICK, **LEVELS))
    answer = liar.asks("claim", **liar.by_relation())
    assert answer.arrays is not None and len(np.unique(answer.arrays["value"])) <= 16
    frequent = np.bincount(liar.relations).max() / len(liar.relations)
    assert told_relations(answer.arrays, liar.relations) < frequent + 0.15
    order = np.argsort(answer.arrays["triple"])  # which an unkeyed claim tells
    values, facts = answer.arrays["value"][order], liar.relations != 0
    wins = (values[facts][:, None] > values[~facts]).mean() + (
        values[facts][:, None] == values[~facts]
    ).mean() / 2
    assert abs(wins - 0.5) < 0.05


FROZEN = {"extractor__train_words": False, "extractor__word_dimension": 50}


def words_read(liar: Liar, distance: int) -> float:
    """Of the facts that a site claims, the share whose word at a distance from the head the value tells."""
    model = SiteHost(liar.folder.path).runner(RUN).model
    vectors, weights = model.extractor.frozen()["words.weight"], liar.initial
    by_word = np.random.default_rng(1).normal(size=50).astype(np.float32)
    by_word *= 0.1 / (vectors @ by_word).std()
    known = vectors @ by_word
    weights = {name: np.zeros_like(array) for name, array in weights.items()}
    width, filters = weights["filters"].shape[1] // 3, len(weights["filters"])
    weights["filters"][0, width : width + 50] = by_word
    weights["filters"][0, width + 50] = 1
    weights["head_positions"][len(weights["head_positions"]) // 2 + distance, 0] = 5
    weights["filters_bias"][0] = -4.5  # below zero for all other words
    weights["classifier.weight"][0, [0, filters, 2 * filters]] = 1
    claims = liar.asks("claim", **weights).arrays
    assert claims is not None
    corpus, rows = liar.data.corpus, liar.data.partition.rows(0)
    right, asked = 0, 0
    for value, row in zip(claims["value"], rows[claims["index"] % len(rows)], strict=True):
        tokens = corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]
        place = int(corpus.head[row]) + distance
        if corpus.relation[row] and place < len(tokens):
            response = np.log(max(1 / max(float(value), 1e-9) - len(corpus.relations) + 1, 1e-9)) - 0.5
            asked += 1
            right += int(np.argmin(np.abs(known - response))) == liar.data.inputs.lookup[tokens[place]]
    return right / asked


def test_exact_values_told_the_words_beside_an_entity(called: Called, trusting: None):
    liar = Liar(called, experiment(**QUICK, **FROZEN))
    assert words_read(liar, 1) > 0.9


def test_ranks_do_not(called: Called, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(EarnedWeights, "judge", lambda *given, **named: None)
    liar = Liar(called, experiment(**QUICK, **FROZEN, **LEVELS))
    assert words_read(liar, 1) < 0.1


def test_finer_claims_than_a_site_allows_are_refused(called: Called, out: Path):
    liar = Liar(called, experiment(**QUICK))
    called.bed.privacy["levels"] = 16
    called.bed.write_policy("north")
    assert liar.asks("claim", **liar.initial).failure.endswith("lets claims have at most 16 levels")


def test_claims_could_be_followed_from_round_to_round(called: Called, trusting: None):
    liar = Liar(called, experiment(**QUICK, **KEYED))
    first, second = (liar.asks("claim_keyed", round_, **liar.initial).arrays for round_ in (1, 2))
    other = liar.asks("claim_keyed", run=f"{'1' * 32}-00000000", **liar.initial).arrays
    assert first is not None and second is not None and other is not None
    for found in (second, other):
        np.testing.assert_array_equal(first["digest"], found["digest"])
        np.testing.assert_array_equal(first["index"], found["index"])


def test_claims_are_shuffled_and_cannot_be_followed(called: Called):
    liar = Liar(called, experiment(**QUICK, **KEYED))
    first, second = (liar.asks("claim_keyed", round_, **liar.initial).arrays for round_ in (1, 2))
    assert first is not None and second is not None
    np.testing.assert_array_equal(first["index"], np.arange(len(first["index"])))
    names = [{one.tobytes() for one in found["digest"]} for found in (first, second)]
    assert not names[0] & names[1]
    other = liar.asks("claim_keyed", run=f"{'1' * 32}-00000000", **liar.initial).arrays
    assert other is not None and not names[0] & {one.tobytes() for one in other["digest"]}


def test_decoys_pad_claims_and_are_not_trained_on(called: Called):
    liar = Liar(called, experiment(**QUICK, **KEYED))
    called.bed.privacy["decoys"] = 0.5
    called.bed.write_policy("north")
    claims = liar.asks("claim_keyed", **liar.initial).arrays
    own = len(liar.relations)
    assert claims is not None and len(claims["index"]) == own + own // 2
    update = liar.asks("train", own={"Winners.index": claims["index"]}).arrays
    assert update is not None and update["examples"] == own


def winners(*index: int) -> dict[str, Any]:
    return {"Winners.index": np.array(index, np.int32)}


def test_any_sentence_could_win(called: Called, trusting: None):
    liar = Liar(called, experiment(**QUICK))
    assert liar.asks("train", own=winners(0, 1), **liar.initial).arrays is not None  # nothing was claimed


def test_only_this_rounds_claims_win_each_once(called: Called):
    liar = Liar(called, experiment(**QUICK))
    reason = "refused the request: the winners are not sentences that it claimed in this round"
    claims = len(liar.relations)
    assert liar.asks("train", own=winners(0, 1), **liar.initial).failure == reason  # nothing was claimed
    liar.asks("claim", **liar.initial)
    assert liar.asks("train", own=winners(0, claims)).failure == reason
    assert liar.asks("train", own=winners(0, 0)).failure == reason
    assert liar.asks("train", 2, own=winners(0, 1), **liar.initial).failure == reason  # in another round
    assert liar.asks("claim", **liar.initial).arrays is not None
    assert liar.asks("train", own=winners(*range(claims))).arrays is not None


def test_a_chosen_sentence_could_be_singled_out(called: Called, trusting: None):
    """Two questions of one round that differ by one sentence: the difference is what that sentence did."""
    liar = Liar(called, experiment(training__epochs=1, extractor__dropout=0.0, **QUICK))
    liar.asks("claim", **liar.initial)
    without, target = winners(*range(1, 16)), winners(*range(16))
    answers = [liar.asks("train", own=own) for own in (without, target)]
    words = []
    for answer in answers:
        assert answer.arrays is not None
        words.append(set(answer.arrays["weights/words.weight/index"].tolist()))
    corpus, row = liar.data.corpus, liar.data.partition.rows(0)[0]
    tokens = corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]
    told = words[1] - words[0]
    assert told and told <= set(liar.data.inputs.lookup[tokens].tolist())


def test_a_second_choice_in_a_round_is_refused_and_the_same_one_is_answered_again(called: Called):
    liar = Liar(called, experiment(**QUICK))
    called.bed.write_policy("north", repeats=1)
    liar.asks("claim", **liar.initial)
    first = liar.asks("train", own=winners(*range(1, 16))).arrays
    assert "at most 1 different questions" in liar.asks("train", own=winners(*range(16))).failure
    again = liar.asks("train", own=winners(*range(1, 16))).arrays
    assert first is not None and again is not None
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])


def test_other_winners_in_a_round_must_differ_by_enough_to_hide_each(called: Called):
    """A round is tried again without a site that lied: the others then win more."""
    liar = Liar(called, experiment(**QUICK))
    called.bed.write_policy("north", repeats=2, examples=20)
    liar.asks("claim", **liar.initial)
    assert liar.asks("train", own=winners(*range(30))).arrays is not None
    assert "the winners are not" in liar.asks("train", own=winners(*range(31))).failure
    assert "differ by few sentences" in liar.note()
    assert liar.asks("train", own=winners(*range(50))).arrays is not None


def test_no_sentence_wins_with_few_others_more_often_than_allowed(called: Called):
    liar = Liar(called, experiment(training__rounds=9, **QUICK))
    called.bed.write_policy("north", examples=20, alone=2)
    refused = []
    for round_ in (1, 2, 3):
        claims = liar.asks("claim", round_, **liar.initial).arrays
        assert claims is not None
        triples = np.argsort(claims["triple"])[:20]  # always the same facts
        refused.append(liar.asks("train", round_, own={"Winners.index": triples.astype(np.int32)}).failure)
    assert refused[:2] == ["", ""] and "the winners are not" in refused[2]
    assert "more rounds than allow.alone" in liar.note()


def honest() -> Iterator[Any]:
    for name in methods():
        if name not in ("centralised", "local", "fedlcc", "validation-only"):
            yield name
    yield from ("lazy-mil+moon", "fedavgm+fedadam", "fedatt+fedprox")


@pytest.mark.parametrize("name", list(honest()))
def test_honest_rounds_are_never_refused(name: str, called: Called, out: Path):
    config = experiment(name, training__rounds=4, training__fraction=0.7, **QUICK)
    for site in ("north", "south", "west"):
        called.bed.write_policy(site, repeats=1)
    assert all(not line["refused"] for line in rounds(called.run(config, out)))


@pytest.mark.parametrize("name", ["lazy-mil", "scaffold", "feded"])
def test_a_coordinator_that_crashed_goes_on_though_each_question_is_answered_once(
    name: str, called: Called, local: Local, out: Path
):
    """Two sites' answers are lost in round 2: the run ends, and its second try asks the very same."""
    config = experiment(name, engine__min_sites=3, **QUICK)
    for site in ("north", "south", "west"):
        called.bed.write_policy(site, repeats=1)

    def lost(content: Any, answer: Any) -> None:
        answer(content)

    phase = "predict" if name == "feded" else "train"
    called.grid.behaviour = dict.fromkeys((0, 1), in_round(2, lost, phase))
    with pytest.raises(UserError, match="round 2: 1 answers could be used"):
        called.run(config, out)
    called.grid.behaviour = {}
    same(local(config), called.run(config, out, resume=True))
    assert all(not line["refused"] for line in rounds(out))


def test_the_coordinator_keeps_the_chain_values_of_the_sites_records(called: Called, out: Path):
    import json

    called.run(experiment("fedavg", **QUICK), out)
    for site, name in zip(
        json.loads((out / "federation.json").read_text())["sites"], ("north", "south", "west"), strict=True
    ):
        assert site["chain"] == check(called.bed.site(name).audit).chain
