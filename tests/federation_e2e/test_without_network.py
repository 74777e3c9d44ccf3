"""Everything but the network: folders, gate, messages, faults, with nodes that are called in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from flwr.app import Error, RecordDict

from fedrel.config.schema import Config
from fedrel.deployment.audit import check
from fedrel.deployment.site_runner import SiteHost
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.flower import codec
from fedrel.federation.flower.client import respond
from fedrel.federation.wire import decode
from fedrel.privacy.site_rules import SiteRules, digests
from fedrel.runs.prepare import prepare
from fedrel.seeding import numpy_generator
from tests.federation_e2e.conftest import Called, Local, experiment
from tests.federation_e2e.grid import endless, gone, in_round, rubbish, silent
from tests.federation_e2e.testbed import rounds, same

QUICK = {"engine__deadline": 0.5}  # seconds; nodes that are called answer before it begins to count


@pytest.mark.parametrize("method", ["lazy-mil", "feded", "fedcmc", "scaffold", "lazy-mil+moon"])
def test_the_same_weights_and_bytes_as_in_one_process(method: str, called: Called, local: Local, out: Path):
    config = experiment(method, **QUICK)
    same(local(config), called.run(config, out))


KEYED = experiment(**{"methods__lazy-mil__keyed_triples": True, **QUICK})


def test_keyed_triples_lead_to_the_same_weights_under_a_key_that_the_coordinator_lacks(
    called: Called, local: Local, out: Path
):
    same(local(KEYED), called.run(KEYED, out))
    key = (called.bed.site("north").path / "triple.key").read_bytes()
    for folder in (called.bed.coordinator.path, out):
        for file in folder.rglob("*"):
            assert file.is_dir() or key not in file.read_bytes(), file
    whole = prepare(KEYED).site_data.corpus
    facts = [
        (whole.entities[head], whole.relations[relation], whole.entities[tail])
        for (head, tail), relation in zip(whole.pairs[whole.triples[:, 0]], whole.triples[:, 1], strict=True)
    ]
    sent = digests_sent(called)
    assert len(sent) > 50
    run = json.loads((out / "federation.json").read_text())["run"]
    keys = [SiteRules(b"", key, run).round_key(round_) for round_ in (1, 2)]  # another one in every round
    of_rounds = [{one.tobytes() for one in digests(each, facts)} for each in keys]
    assert sent <= of_rounds[0] | of_rounds[1] and not of_rounds[0] & of_rounds[1]
    known = numpy_generator(KEYED.seed, "triple-key").bytes(32)  # what the coordinator could try
    assert not sent & {one.tobytes() for one in digests(known, facts)}


@pytest.mark.parametrize("key", [None, b"too short"])
def test_keyed_triples_without_a_key_are_refused(key: bytes | None, called: Called, out: Path):
    file = called.bed.site("south").path / "triple.key"
    file.unlink()
    if key is not None:
        file.write_bytes(key)
    with pytest.raises(UserError, match=r"site-1 refused the request: .* its triple\.key is missing"):
        called.run(KEYED, out)


def test_a_resumed_run_finds_the_site_states(called: Called, local: Local, out: Path):
    called.run(experiment("scaffold", **QUICK), out)
    longer = experiment("scaffold", training__rounds=4, **QUICK)
    same(local(longer), called.run(longer, out, resume=True))


def test_a_new_run_of_the_same_experiment_starts_without_site_states(
    called: Called, local: Local, tmp_path: Path
):
    config = experiment("scaffold", **QUICK)
    called.run(config, tmp_path / "first")
    same(local(config), called.run(config, tmp_path / "second"))
    longer = experiment("scaffold", training__rounds=4, **QUICK)
    same(local(longer), called.run(longer, tmp_path / "first", resume=True))


def test_only_the_last_runs_of_an_experiment_keep_their_site_states(
    called: Called, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("fedrel.deployment.site_runner.EARLIER_RUNS", 1)
    for name in "abc":
        called.run(experiment("scaffold", **QUICK), tmp_path / name)
    state = called.bed.site("north").path / "state"
    last = [json.loads((tmp_path / name / "federation.json").read_text())["run"] for name in "bc"]
    kept = {folder.name for folder in state.iterdir() if not folder.name.startswith("earned-")}
    assert kept == set(last)  # what was earned is the experiment's, not a run's


def test_a_site_whose_request_was_lost_is_sent_everything_again(called: Called, local: Local, out: Path):
    lost: list[str] = []

    def once(content, answer):
        question = content["question"]
        if question["round"] == 2 and not lost:
            lost.append(question["phase"])
            return gone(content, answer)
        return answer(content)

    called.grid.behaviour[2] = once
    called.run(experiment("fedavg", engine__min_sites=3, training__rounds=2, **QUICK), out)
    assert lost and len(rounds(out)) == 2


def test_limits_hold_in_every_round(called: Called, out: Path):
    """Only what a site holds is asked for in round 0, and no sentence counts twice."""
    called.run(experiment(training__rounds=1, **QUICK), out)
    called.bed.write_policy("south", examples=20)
    (train,) = [
        content
        for content in called.grid.carried
        if "question" in content
        and (content["question"]["site"], content["question"]["phase"]) == (1, "train")
    ]
    folder = called.bed.site("south").path

    def ask() -> Answer:
        return codec.decode_answer(respond(lambda: SiteHost(folder), train))

    train["own"] = codec.encode_arrays({"Winners.index": np.full(20, 3, np.int32)})
    assert ask().failure.startswith("refused the request: the winners are not")
    train["question"]["round"] = 0
    assert ask().failure.startswith("refused the request: it does not fit")
    notes = [line.entry.note for line in check(called.bed.site("south").audit).lines[-2:]]
    assert "a claim won twice" in notes[0] and "asks for train in round 0" in notes[1]


@pytest.mark.parametrize("phase", ["claim", "train"])
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (silent, "did not answer within 0.5 seconds"),
        (gone, "is no longer connected"),
        (rubbish, "answered something else"),
        (endless, "answered something else"),
    ],
)
def test_a_site_that_fails_is_left_out_and_named(behaviour, reason, phase, called: Called, out: Path):
    called.grid.behaviour[1] = in_round(2, behaviour, phase)
    called.run(experiment(training__rounds=3, **QUICK), out)
    first, second, third = rounds(out)
    assert not first["refused"] and not third["refused"]
    (refused,) = second["refused"]
    assert refused["site"] == 1 and reason in refused["reason"]


@pytest.mark.parametrize(("file", "content"), [("site.toml", "= nothing"), ("audit.jsonl", "no record\n")])
def test_a_sites_damaged_files_are_not_described_to_the_coordinator(
    file: str, content: str, called: Called, out: Path
):
    """Neither a policy nor a record that cannot be read makes its path or its text leave."""

    def spoilt(question: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict:
        (called.bed.site("south").path / file).write_text(content)
        return answer(question)

    called.grid.behaviour[1] = in_round(2, spoilt, "train")
    called.run(experiment(training__rounds=2, **QUICK), out)
    (refused,) = rounds(out)[1]["refused"]
    assert refused["reason"] == "failed while it answered (the site's log says why)"
    assert refused["site"] == 1


def test_a_site_whose_first_request_was_lost_is_asked_again(called: Called, local: Local, out: Path):
    """It crashed and came back before the coordinator noticed: its request went to nobody."""
    asked: list[int] = []

    def lost_once(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | Error:
        asked.append(content["question"]["round"])
        return gone(content, answer) if len(asked) == 2 else answer(content)

    called.grid.behaviour[2] = lost_once
    config = experiment("fedavg", training__rounds=1, engine__deadline=600)
    same(local(config), called.run(config, out))
    assert asked == [0, 0, 0, 1]  # which site it is, what it holds twice, and the round


def test_a_site_that_is_gone_is_not_waited_for(called: Called, out: Path, monkeypatch):
    monkeypatch.setattr("fedrel.federation.flower.members.FRESH", 0.0)
    config = experiment("fedavg", training__rounds=2, engine__deadline=1000)
    leave = in_round(1, lambda content, answer: _and(called.grid.connected.discard(102), answer(content)))
    called.grid.behaviour[2] = leave
    called.run(config, out)
    (refused,) = rounds(out)[1]["refused"]
    assert refused == {"site": 2, "message": "Update", "reason": "is not connected"}


def test_too_few_answers_end_the_run_and_it_can_go_on(called: Called, local: Local, out: Path):
    config = experiment("fedavg", engine__min_sites=2, training__rounds=3, **QUICK)
    called.grid.behaviour = dict.fromkeys((0, 1), in_round(2, silent))
    with pytest.raises(
        UserError, match=r"round 2: 1 answers could be used, and engine.min_sites is 2 \(.*within"
    ):
        called.run(config, out)
    called.grid.behaviour = {}
    assert len(rounds(out)) == 1
    same(local(config), called.run(config, out, resume=True))


def test_a_reserve_changes_nothing_while_all_sites_answer(called: Called, local: Local, out: Path):
    config = experiment("fedavg", training__fraction=0.4, training__rounds=3, **QUICK)
    spared = config.with_settings(["engine.extra_sites=1"])
    called.run(spared, out)
    for mine, plain in zip(rounds(out), rounds(local(config)), strict=True):
        assert mine.pop("bytes")["up"] > plain.pop("bytes")["up"]  # what the reserve sent is counted
        assert len(mine["at_sites"]) == len(plain["at_sites"]) + 1
        mine["at_sites"] = {site: mine["at_sites"][site] for site in plain["at_sites"]}
        assert mine == plain


def test_a_site_in_reserve_replaces_one_that_fails(called: Called, out: Path):
    config = experiment("fedavg", training__fraction=0.4, training__rounds=1, engine__extra_sites=1, **QUICK)
    (drawn,) = rounds(called.run(config, out.with_name("plain")))[0]["active"]
    called.grid.behaviour[drawn] = in_round(1, silent)
    (line,) = rounds(called.run(config, out))
    (replacement,) = line["active"]
    assert replacement != drawn and line["refused"][0]["site"] == drawn
    assert line["examples"] > 0


@pytest.mark.parametrize(
    ("allow", "reason"),
    [
        ({"methods": ["fedavg"]}, "its site.toml does not allow the method"),
        ({"epochs": 1}, "its site.toml allows at most 1 epochs"),
        ({"examples": 10**6}, "its site.toml demands at least 1000000 examples"),
    ],
)
def test_what_a_site_does_not_allow_ends_the_run(allow, reason, called: Called, out: Path):
    called.bed.write_policy("south", **allow)
    with pytest.raises(
        UserError, match=f"2 of 3 sites are ready, 3 must be: site-1 refused the request: {reason}"
    ):
        called.run(experiment(**QUICK), out)
    config = experiment(engine__min_sites=2, training__rounds=1, **QUICK)
    assert rounds(called.run(config, out))[0]["active"] == [0, 2]


def test_a_site_prepared_with_other_artefacts_refuses(called: Called, out: Path, monkeypatch):
    def prepared_otherwise(config: Config, site: Path) -> None:
        (site / "config.json").write_text(config.model_dump_json())

    monkeypatch.setattr("tests.federation_e2e.conftest.prepared_for", prepared_otherwise)
    seal = called.bed.site("west").path / "artefacts.json"
    seal.write_text(json.dumps(json.loads(seal.read_text()) | {"relations": "3" * 64}))
    with pytest.raises(UserError, match="site-2 refused the request: its relation map is not the one"):
        called.run(experiment(**QUICK), out)


def test_a_site_does_not_run_the_coordinators_functions(called: Called, out: Path):
    """FedED's `distil` is `at_coordinator`: a site would train on what it is sent."""

    def distil(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict:
        content["question"]["phase"] = "distil"
        return answer(content)

    called.grid.behaviour[1] = in_round(1, distil)
    called.run(experiment("feded", training__rounds=1, **QUICK), out)
    (refused,) = rounds(out)[0]["refused"]
    assert refused["site"] == 1 and "does not fit its declaration" in refused["reason"]
    note = check(called.bed.site("south").audit).lines[-1].entry.note
    assert "asks for distil, which is not a function that sites run" in note


EVIL = """\
from pathlib import Path

Path({trace!r}).touch()
class Method: pass
"""


@pytest.mark.parametrize(
    "change",
    [
        lambda tree, file: tree.update(plugins=[str(file)]),
        lambda tree, _: tree.update(method="evil:Method"),
        lambda tree, _: tree.update(method="lazy-mil+evil:Method"),
        lambda tree, _: tree.update(methods={"evil:Method": {}}),
        lambda tree, _: tree["extractor"].update(kind="evil:Method"),
        lambda tree, file: tree.update(
            data={"corpus": "files", "format": "evil:Method", "pool": [str(file)]}
        ),
        lambda tree, _: tree.update(partition={"kind": "evil:Method"}),
    ],
)
def test_a_site_imports_and_opens_nothing_that_a_request_names(change, called: Called, out, monkeypatch):
    """The request is refused, or what it names is not used: the site works with its own copy of the config."""
    file, trace = out.with_name("evil.py"), out.with_name("trace")
    file.write_text(EVIL.format(trace=str(trace)))
    monkeypatch.syspath_prepend(str(file.parent))  # even where the module is installed

    def with_evil_config(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict:
        tree = json.loads(content["question"]["config"])
        change(tree, file)
        content["question"]["config"] = json.dumps(tree)
        return answer(content)

    called.grid.behaviour[1] = in_round(1, with_evil_config)
    called.run(experiment("fedavg", training__rounds=1, **QUICK), out)
    refused = rounds(out)[0]["refused"]
    used = {"plugins", "method", "methods", "extractor"}
    tree: dict[str, Any] = {"extractor": {}}
    change(tree, file)
    if used & {key for key, value in tree.items() if value}:
        assert [one["site"] for one in refused] == [1]
        assert refused[0]["reason"] == "refused the request: its config is not the one that was published"
    else:
        assert not refused
    assert not trace.exists() and "evil" not in sys.modules


def test_a_method_that_moves_text_is_refused(called: Called, out: Path):
    config = experiment(**{"methods__lazy-mil__pooled_winners": True}, **QUICK)
    with pytest.raises(UserError, match="'lazy-mil' is for simulations only: pooled_winners moves text"):
        called.run(config, out)


def test_nothing_but_arrays_and_numbers_leaves_a_site(called: Called, out: Path):
    called.grid.behaviour[0] = in_round(1, lambda content, answer: answer(_broken(content)))
    called.run(experiment(training__rounds=1, **QUICK), out)
    assert "does not fit its declaration" in rounds(out)[0]["refused"][0]["reason"]
    answers = [content for content in called.grid.carried if "question" not in content]
    assert len(answers) > 6
    for content in answers:
        assert list(content) in (["answer", "chain"], ["refusal", "chain"])
        assert len(content["chain"]["value"].data) == 32  # of the site's record
        assert not content.config_records
        if "refusal" in content:
            assert sorted(content["refusal"]) == ["number", "why"]


def digests_sent(called: Called) -> set[bytes]:
    """Every name of a fact that left a site."""
    bodies = [bytes(content["answer"]["body"].data) for content in called.grid.carried if "answer" in content]
    claims = [found["digest"] for found in map(decode, bodies) if "digest" in found]
    return {one.tobytes() for claim in claims for one in claim}


def _and(_: object, result: RecordDict) -> RecordDict:
    return result


def _broken(content: RecordDict) -> RecordDict:
    content["question"]["phase"] = "round"  # a name that the method has, but not for sites
    return content
