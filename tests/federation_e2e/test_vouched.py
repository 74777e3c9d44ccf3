"""Sites that vouch for updates train no weights but means of them: word detectors are refused in every round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from fedrel.deployment.audit import check
from fedrel.deployment.client_app import SiteHost
from fedrel.deployment.site_gate import SiteGate
from fedrel.errors import UserError
from fedrel.federation.earned import Earned
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
    assert "moved otherwise" in liar.asks("train", 2, **sent).failure
    assert "what they are made of is not shown" in liar.note()
    real = Earned.kept_in({}).with_round(1, {0: 1.0}, {0: first.vouch})
    assert "moved otherwise" in liar.asks("train", 2, own=shown(real), **sent).failure
    assert "away from what the sites' updates add up to" in liar.note()
    trained = {name: first.arrays[f"weights/{name}"] for name in sent}
    part = {name: trained[name] + np.float32(0.01) * sent[name] for name in sent}  # patiently
    assert "moved otherwise" in liar.asks("train", 2, own=shown(real), **part).failure
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
        UserError, match=r"round 2: no site's answer could be used \(site-0: refused the request"
    ):
        called.run(config, out)


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
