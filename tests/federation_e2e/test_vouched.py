"""Sites that vouch for updates train no weights but means of them: word detectors are refused in every round."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from fedrel.deployment.audit import check
from fedrel.deployment.site_gate import SiteGate
from fedrel.deployment.site_runner import SiteHost
from fedrel.errors import UserError
from fedrel.federation.earned import Earned, vouch
from fedrel.files import sealed
from fedrel.privacy.vouching import WHOLE, OwnUpdates, ShownLists, Vouching
from tests.federation_e2e.conftest import Called, Local, experiment
from tests.federation_e2e.test_lying_coordinator import KEYED, LEVELS, QUICK, Liar
from tests.federation_e2e.testbed import NAMES, rounds

VOUCHED = {"privacy__vouched": True}
READING = {"extractor__train_words": False, "extractor__word_dimension": 50, "training__epochs": 1}


def detectors(liar: Liar, words: Any) -> dict[str, Any]:
    """Weights in which every filter responds to one word alone."""
    weights = {name: np.zeros_like(array) for name, array in liar.initial.items()}
    vectors = (
        SiteHost(liar.folder.path).runner("0" * 32 + "-00000000").model.extractor.frozen()["words.weight"]
    )
    width = weights["filters"].shape[1] // 3
    chosen = vectors[words]
    weights["filters"][: len(words), width : width + 50] = chosen / np.square(chosen).sum(1, keepdims=True)
    weights["filters_bias"] -= 0.75
    weights["classifier.weight"] += np.random.default_rng(3).normal(
        0, 0.5, weights["classifier.weight"].shape
    )
    return {name: array.astype(np.float32) for name, array in weights.items()}


def there_and_not(liar: Liar, count: int) -> tuple[Any, Any]:
    """Some words that the site has, and some that it lacks."""
    corpus, held = liar.data.corpus, liar.data.partition.rows(0)
    tokens = np.concatenate([corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]] for row in held])
    counts = np.bincount(liar.data.inputs.lookup[tokens], minlength=int(liar.data.inputs.lookup.max()) + 1)
    known = np.arange(2, len(counts))  # the first two are of padding and unknown words
    return known[counts[2:] > 0][-count:], known[counts[2:] == 0][-count:]


def responds(sent: dict[str, Any], arrays: Any, words: Any) -> set[int]:
    before, after = sent["filters"][: len(words)], arrays["weights/filters"][: len(words)]
    kept = (before * after).sum(1) / np.square(before).sum(1)  # by weight decay
    return set(words[np.linalg.norm(after - kept[:, None] * before, axis=1) > 1e-4].tolist())


def lenient(called: Called) -> None:
    """A site for which any step is short enough: only vouching is left."""
    called.bed.write_policy("north", step=1e9, against=1e9)


def test_word_detectors_in_round_2_found_words(called: Called):
    liar = Liar(called, experiment("fedavg", **READING, **QUICK))
    lenient(called)
    assert liar.asks("train", 1, **liar.initial).arrays is not None
    there, absent = there_and_not(liar, 6)
    words = np.concatenate([there, absent])
    sent = detectors(liar, words)
    answer = liar.asks("train", 2, **sent)
    assert answer.arrays is not None
    assert responds(sent, answer.arrays, words) == set(there.tolist())


def shown(earned: Earned) -> dict[str, Any]:
    return {f"Earned.{name}": array for name, array in earned.pack().items()}


def test_they_are_refused_where_sites_vouch(called: Called):
    liar = Liar(called, experiment("fedavg", **READING, **QUICK, **VOUCHED))
    lenient(called)
    own = shown(Earned.kept_in({}))
    first = liar.asks("train", 1, own=own, **liar.initial)
    assert first.arrays is not None and first.vouch
    sent = detectors(liar, np.concatenate(there_and_not(liar, 6)))
    assert "not made of updates that sites vouch for" in liar.asks("train", 2, **sent).failure
    assert "what they are made of is not shown" in liar.note()
    real = Earned.kept_in({}).with_round(1, {0: 1.0}, {0: first.vouch})
    assert (
        "not made of updates that sites vouch for" in liar.asks("train", 2, own=shown(real), **sent).failure
    )
    assert "away from what the sites' updates add up to" in liar.note()
    trained = {name: first.arrays[f"weights/{name}"] for name in sent}
    part = {name: trained[name] + np.float32(0.01) * sent[name] for name in sent}  # patiently
    assert (
        "not made of updates that sites vouch for" in liar.asks("train", 2, own=shown(real), **part).failure
    )
    assert liar.asks("train", 2, own=shown(real), **trained).arrays is not None


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fedavg", {"aggregation__norm_bound": 1.0}),
        ("lazy-mil", {**KEYED, **LEVELS, "training__fraction": 0.7}),
        ("fedcmc", {}),
        ("moon+fedrs", {"aggregation__share_cap": 1.5}),
    ],
)
def test_honest_rounds_pass_and_lead_to_the_same_weights(
    name: str, changes: dict[str, Any], called: Called, local: Local, out: Path
):
    config = experiment(name, training__rounds=4, **changes, **QUICK)
    for site in NAMES:
        called.bed.write_policy(site, repeats=1, vouched=True)
    vouched = called.run(config.with_settings({"privacy.vouched": True}), out)
    assert all(not line["refused"] for line in rounds(vouched))
    plain = [(line["loss"], line["dev"], line["active"]) for line in rounds(local(config))]
    assert plain == [(line["loss"], line["dev"], line["active"]) for line in rounds(vouched)]
    lines = check(called.bed.site("north").audit).lines
    assert any(field.name == "vouch" for line in lines for field in line.entry.fields)


def test_a_run_that_is_resumed_still_shows_what_its_weights_are_made_of(called: Called, out: Path):
    config = experiment("fedavg", training__rounds=2, **QUICK, **VOUCHED)
    called.run(config, out)
    (out / "result.json").unlink()
    called.run(config.with_settings({"training.rounds": 4}), out, resume=True)
    assert all(not line["refused"] for line in rounds(out))


def test_a_site_that_vouches_falsely_stops_the_run_and_poisons_nothing(
    called: Called, out: Path, monkeypatch: pytest.MonkeyPatch
):
    honest = SiteGate._tag

    def lie(self: SiteGate, request: Any, arrays: Any) -> bytes | None:
        tag = honest(self, request, arrays)
        return bytes(len(tag)) if tag and request.site == 2 else tag

    monkeypatch.setattr(SiteGate, "_tag", lie)
    config = experiment("fedavg", training__rounds=3, **QUICK, **VOUCHED)
    with pytest.raises(
        UserError,
        match=r"round 2: no site's answer could be used \(site-0, site-1, site-2: refused the request",
    ) as caught:
        called.run(config, out)
    assert "the tag of an update of round 1 is false, of one of these sites: site-0, site-1, site-2" in str(
        caught.value
    )


class Cohort:
    """A lying coordinator and what three sites answered: `north`, which it asks, and two whose updates it has."""

    def __init__(self, called: Called, **changes: Any) -> None:
        settings = {"training__rounds": 9, **READING, **QUICK, **VOUCHED, **changes}
        self.liar = Liar(called, experiment("fedavg", **settings))
        folder = self.liar.folder
        assert folder.triple_key is not None
        self.keyed = Vouching(folder.triple_key, folder.fingerprint)
        self.made, self.weights, self.round = Earned.kept_in({}), self.liar.initial, 1

    def asks(self) -> Any:
        """Ask `north` to train; a string if it refuses."""
        answer = self.liar.asks("train", self.round, own=shown(self.made), **self.weights)
        return answer if answer.arrays is not None else answer.failure

    def goes_on(self, answer: Any, shares: dict[int, float]) -> None:
        """The mean of north's update and of those that the others would send, each with its share."""
        moves = {
            site: {
                name: generator.normal(0, 0.001, array.shape).astype(np.float32)
                for name, array in self.weights.items()
            }
            for site in (1, 2)
            for generator in [np.random.default_rng([site, self.round])]
        }
        moves[0] = {name: answer.arrays[f"weights/{name}"] - array for name, array in self.weights.items()}
        vouches = {0: answer.vouch}
        for site in (1, 2):
            trained = {name: self.weights[name] + move for name, move in moves[site].items()}
            vouches[site] = vouch(site, self.keyed.tag(self.round, site, site, self.weights, trained))
        self.made = self.made.with_round(self.round, shares, vouches)
        self.weights = {
            name: (array + sum(share * moves[site][name] for site, share in shares.items())).astype(
                np.float32
            )
            for name, array in self.weights.items()
        }
        self.round += 1


ALL, OTHERS = {0: 0.5, 1: 0.3, 2: 0.2}, {1: 0.6, 2: 0.4}


@pytest.fixture
def only_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site as it was: weights must be made of tagged updates, whatever the list says of it and of shares."""
    for kind, name in ((OwnUpdates, "left_out"), (OwnUpdates, "outweighed"), (ShownLists, "changed")):
        monkeypatch.setattr(kind, name, lambda *given, **named: "")


def test_a_site_could_be_left_out_in_every_round(called: Called, only_tags: None):
    cohort = Cohort(called)
    for _ in range(4):
        cohort.goes_on(cohort.asks(), OTHERS)


def test_shares_and_numbers_of_rounds_could_be_anything(called: Called, only_tags: None):
    cohort = Cohort(called)
    agreed(cohort, 1, 1, 1)
    cohort.goes_on(cohort.asks(), {0: 0.0, 1: 0.01, 2: 0.99})
    cohort.round = 7
    answer = cohort.asks()
    cohort.round = 3
    cohort.goes_on(answer, OTHERS)
    cohort.round = 8
    assert cohort.asks().arrays is not None


@pytest.mark.parametrize("shares", [OTHERS, {0: 0.0, **OTHERS}])
def test_a_site_whose_updates_are_left_out_refuses(called: Called, shares: dict[int, float]):
    cohort = Cohort(called)
    cohort.goes_on(cohort.asks(), ALL)
    cohort.goes_on(cohort.asks(), shares)
    cohort.goes_on(cohort.asks(), shares)  # one may have been lost on the way
    assert "its own last updates are not in the global weights" in cohort.asks()
    assert "though it answered in round 2, 3" in cohort.liar.note()


def test_a_strict_site_refuses_at_once_and_one_that_is_used_again_does_not(called: Called):
    cohort = Cohort(called)
    cohort.goes_on(cohort.asks(), OTHERS)
    called.bed.write_policy("north", missing=0)
    assert "its own last updates" in cohort.asks()
    called.bed.write_policy("north", missing=1)
    for shares in (ALL, OTHERS, ALL, OTHERS):
        cohort.goes_on(cohort.asks(), shares)


def test_rounds_that_are_not_in_the_weights_left_nobody_out(called: Called):
    """A coordinator went back to earlier weights, twice."""
    cohort = Cohort(called)
    cohort.goes_on(cohort.asks(), ALL)
    before = cohort.made, cohort.weights
    for _ in range(2):
        cohort.goes_on(cohort.asks(), ALL)
        cohort.made, cohort.weights = before
    assert cohort.asks().arrays is not None


def test_rounds_of_its_own_do_not_hide_that_a_site_is_left_out(called: Called):
    """The others are asked in other rounds than this site, whose updates then belong to no round of theirs."""
    cohort = Cohort(called)
    for _ in range(2):
        answer = cohort.asks()
        cohort.round += 1
        cohort.goes_on(answer, OTHERS)
    assert "its own last updates are not in the global weights" in cohort.asks()
    assert "though it answered in round 1, 3" in cohort.liar.note()


def test_nor_do_later_updates_with_earlier_numbers(called: Called):
    cohort = Cohort(called)
    answer = cohort.asks()
    cohort.goes_on(answer, ALL)
    cohort.round = 7
    answer = cohort.asks()
    cohort.round = 3
    cohort.goes_on(answer, OTHERS)  # the others were asked after it, and are said to have been asked before
    cohort.round = 8
    assert "not made of updates that sites vouch for" in cohort.asks()
    assert "round 3 are not those that were shown before round 7" in cohort.liar.note()


def test_shares_of_earlier_rounds_stay_as_they_were(called: Called):
    cohort = Cohort(called)
    first = cohort.asks()
    before = cohort.made, cohort.weights
    cohort.goes_on(first, ALL)
    second = cohort.asks()
    (cohort.made, cohort.weights), cohort.round = before, 1
    cohort.goes_on(first, {0: 0.9, 1: 0.05, 2: 0.05})
    cohort.round = 3
    assert second.arrays is not None and "not made of updates" in cohort.asks()


def test_an_update_that_the_site_never_sent_is_refused(called: Called):
    cohort = Cohort(called)
    answer = cohort.asks()
    cohort.goes_on(answer, ALL)
    forged = int.from_bytes(answer.vouch[:8], "little") ^ 1
    cohort.made = replace(cohort.made, question=np.array([forged, 1, 2], np.uint64))
    tag = np.frombuffer(answer.vouch[8:], "<u8")
    masks = [cohort.keyed._mask(1, 0, one) for one in (int(cohort.made.question[0]) ^ 1, forged)]
    part = np.uint64(round(ALL[0] * WHOLE))
    assert len(tag) == len(masks[0])
    cohort.made = replace(cohort.made, total=cohort.made.total + part * (masks[1] - masks[0]))
    assert "its own last updates" in cohort.asks()  # made by somebody who has the sites' key
    assert "is said to be this site's, which did not send it" in cohort.liar.note()


def agreed(cohort: Cohort, *sizes: int | None) -> None:
    cohort.liar.folder.sizes_file.write_text(json.dumps(sealed({"sizes": sizes})))


def test_a_site_that_counts_for_more_than_agreed_is_refused_by_the_others(called: Called):
    """North's update is of so many examples: what the others count for follows from the shares."""
    cohort = Cohort(called)
    answer = cohort.asks()
    examples = int(answer.arrays["examples"])
    cohort.goes_on(answer, {0: 0.1, 1: 0.6, 2: 0.3})
    agreed(cohort, None, 6 * examples - 1, 3 * examples + 1)
    assert "counts for more examples than were agreed for it" in cohort.asks()
    note = cohort.liar.note()
    assert (
        f"site number 1 counts for {6 * examples - 1} examples or more, and {6 * examples - 1} are the most"
        in note
    )
    agreed(cohort, None, 6 * examples + 1, 3 * examples + 1)
    assert cohort.asks().arrays is not None


def test_where_all_count_the_same_nobody_counts_for_more(called: Called):
    """A share of next to nothing is as good as none, and is not called missing."""
    cohort = Cohort(called, methods__fedavg__weighting='"uniform"')
    tiny = {0: 0.001, 1: 0.5, 2: 0.499}
    cohort.goes_on(cohort.asks(), tiny)
    assert "counts for more examples than were agreed" in cohort.asks()


def test_sizes_are_not_judged_where_shares_may_be_capped_or_shortened(called: Called):
    """North has an equal share, or may have one with what a norm bound cut off."""
    cohort = Cohort(called)
    agreed(cohort, 1, 1, 1)
    cohort.goes_on(cohort.asks(), {0: 0.34, 1: 0.33, 2: 0.33})
    cohort.goes_on(cohort.asks(), {0: 0.2, 1: 0.33, 2: 0.33})
    assert cohort.asks().arrays is not None


def test_an_experiment_without_it_is_refused_where_a_site_demands_it(called: Called):
    liar = Liar(called, experiment("fedavg", **QUICK))
    called.bed.write_policy("north", vouched=True)
    assert "demands updates that sites vouch for" in liar.asks("train", **liar.initial).failure


def test_a_site_without_the_sites_key_refuses(called: Called):
    liar = Liar(called, experiment("fedavg", **QUICK, **VOUCHED))
    (called.bed.site("north").path / "triple.key").unlink()
    assert "its triple.key is missing" in liar.asks("train").failure


@pytest.mark.parametrize("name", ["scaffold", "feded", "fedavgm", "feddyn"])
def test_methods_whose_weights_are_no_mean_are_refused(name: str):
    from fedrel.methods.by_name import check_vouched, method

    with pytest.raises(UserError, match="the global weights are no mean of the sites' updates"):
        check_vouched(method(name, {}), experiment(name, **VOUCHED))


def test_nor_do_other_rules_give_a_mean():
    from fedrel.methods.by_name import check_vouched, method

    config = experiment("fedavg", aggregation__rule='"median"', **VOUCHED)
    with pytest.raises(UserError, match=r"aggregation\.rule 'median' is no mean"):
        check_vouched(method("fedavg", {}), config)


def test_a_simulation_has_nobody_to_vouch_for(out: Path):
    from fedrel.runs.train import run

    with pytest.raises(UserError, match="is for real sites"):
        run(experiment("fedavg", **VOUCHED), out)
