"""A site refuses what its `site.toml` does not allow, with the reason, and records that."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedrel.deployment.answered import Answered
from fedrel.deployment.audit import check
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.policy import (
    Allowed,
    SitePolicy,
    check_names,
    kinds_of_message,
    not_private,
    objections,
    read_policy,
)
from fedrel.deployment.site_gate import SiteGate
from fedrel.deployment.submit import config_for_sites
from fedrel.errors import UserError
from fedrel.federation.flower.host import Refusal, RefusalCode, Request
from fedrel.federation.messages import HOLDINGS
from fedrel.methods.by_name import methods
from tests.conftest import tiny
from tests.deployment.conftest import ALLOW, SITES

UPDATE = {
    "weights/filters": np.zeros((2, 3), np.float32),
    "examples": np.asarray(30, np.int64),
    "loss": np.asarray(0.5),
}


def request(federation: Any, **changes: Any) -> Request:
    config = config_for_sites(load_experiment(federation.write()), SITES)
    found = Request(
        run="run",
        config=config.model_dump(mode="json"),
        artefacts=federation.site("north").prepared_with,
        site=0,
        round=1,
        phase="train",
        gives="Update",
    )
    settings = changes.pop("settings", None)
    if settings:
        changes["config"] = config.with_settings(settings).model_dump(mode="json")
    return dataclasses.replace(found, **changes)


def notes(federation: Any) -> list[str]:
    return [line.entry.note for line in check(federation.site("north").audit).lines]


def test_what_is_allowed_passes_and_is_recorded(federation):
    gate = SiteGate(federation.site("north"))
    first = request(federation, round=0, phase=HOLDINGS, gives="Holdings")
    assert gate.allow(first) is None
    assert gate.record(first, {"sentences": np.asarray(70, np.int64)}) is None
    assert gate.allow(request(federation)) is None
    assert gate.record(request(federation), UPDATE) is None
    entries = [line.entry for line in check(federation.site("north").audit).lines]
    assert [(e.round, e.phase, e.message, e.bytes) for e in entries] == [
        (0, "census", "Holdings", 8),
        (1, "train", "Update", 40),
    ]


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Refusal, str]] = {
    "method": ({"methods": ["fedavg"]}, {}, Refusal(RefusalCode.METHOD), "'lazy-mil'"),
    "privacy": (
        {"differential_privacy": True},
        {},
        Refusal(RefusalCode.PRIVACY),
        "the experiment has no [privacy.dp]",
    ),
    "message": ({"may_leave": ["Holdings"]}, {}, Refusal(RefusalCode.MESSAGE), "does not name 'Update'"),
    "field": ({"may_leave": ["Update.weights"]}, {}, Refusal(RefusalCode.FIELD), "Update.examples"),
    "field that must stay": ({"must_stay": ["Update.loss"]}, {}, Refusal(RefusalCode.FIELD), "Update.loss"),
    "rounds": ({"rounds": 4}, {"round": 5}, Refusal(RefusalCode.ROUNDS, 4), "round 5"),
    "epochs": ({"epochs": 1}, {}, Refusal(RefusalCode.EPOCHS, 1), "2 epochs"),
    "few sentences": (
        {"examples": 5000},
        {},
        Refusal(RefusalCode.EXAMPLES, 5000),
        "fewer than allow.examples",
    ),
    "other settings": (
        {},
        {"settings": ["training.learning_rate=9"]},
        Refusal(RefusalCode.CONFIG),
        "another training than was published",
    ),
    "relations": (
        {},
        {"artefacts": {"relations": "0"}},
        Refusal(RefusalCode.CONFIG),
        "config: prepared with",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_computed(federation, case):
    allow, changes, reason, note = REFUSED[case]
    federation.policy("north", **allow)
    assert SiteGate(federation.site("north")).allow(request(federation, **changes)) == reason
    (entry,) = [line.entry for line in check(federation.site("north").audit).lines]
    assert entry.message == "Refusal"
    assert [field.name for field in entry.fields] == ["number", "why"]
    assert note in entry.note and str(reason) in entry.note


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("config", RefusalCode.CONFIG),
        ("relations", RefusalCode.RELATIONS),
        ("vocabulary", RefusalCode.VOCABULARY),
        ("knowledge_base", RefusalCode.KNOWLEDGE_BASE),
        ("validation", RefusalCode.VALIDATION),
        ("encoder", RefusalCode.ENCODER),
        ("something new", RefusalCode.ARTEFACTS),
    ],
)
def test_a_different_artefact_is_named(federation, name, why):
    artefacts = {**federation.site("north").prepared_with, name: "0" * 64}
    assert SiteGate(federation.site("north")).allow(request(federation, artefacts=artefacts)) == Refusal(why)
    assert notes(federation)[0].count(f"({name}: prepared with") == 1


def test_another_validation_set_could_be_planted(federation, monkeypatch):
    """A site that does not compare what it was prepared with: its predictions tell which sentences it has."""
    monkeypatch.setattr("fedrel.deployment.site_gate.differences", lambda mine, asked: [])
    artefacts = {**federation.site("north").prepared_with, "validation": "0" * 64}
    assert SiteGate(federation.site("north")).allow(request(federation, artefacts=artefacts)) is None


def test_too_few_examples_do_not_leave(federation):
    federation.policy("north", examples=20)
    gate = SiteGate(federation.site("north"))
    assert gate.allow(request(federation)) is None
    few = {**UPDATE, "examples": np.asarray(19, np.int64)}
    assert gate.record(request(federation), few) == Refusal(RefusalCode.EXAMPLES, 20)
    assert "19 examples" in notes(federation)[0]  # which the coordinator is not told
    assert gate.record(request(federation), {**few, "examples": np.asarray(20, np.int64)}) is None


def test_a_tensor_that_must_stay_does_not_leave(federation):
    federation.policy("north", must_stay=["Update.weights/words.weight"])
    gate = SiteGate(federation.site("north"))
    assert gate.allow(request(federation)) is None  # a frozen word table is not in the update
    assert gate.record(request(federation), UPDATE) is None
    rows = {**UPDATE, "weights/words.weight/index": np.zeros(1, np.int32)}
    assert gate.record(request(federation), rows) == Refusal(RefusalCode.FIELD)
    assert "Update.weights/words.weight/index" in notes(federation)[1]


def test_only_named_tensors_leave_where_tensors_are_named(federation):
    may_leave = ["Update.weights/filters", "Update.examples", "Update.loss"]
    federation.policy("north", may_leave=may_leave)
    gate = SiteGate(federation.site("north"))
    assert gate.allow(request(federation)) is None
    assert gate.record(request(federation), UPDATE) is None
    other = {**UPDATE, "weights/filters_bias": np.zeros(2, np.float32)}
    assert gate.record(request(federation), other) == Refusal(RefusalCode.FIELD)


NO_MODEL: Any = None  # a request without weights needs no runner


def asked(gate: SiteGate, found: Request, value: int) -> Refusal | None:
    """Ask with this much of something, and answer if the gate lets it."""
    came = {"Winners.index": np.full(3, value, np.int32)}
    return gate.allow(found) or gate.receive(found, came, NO_MODEL) or gate.record(found, UPDATE)


def test_another_question_of_the_same_kind_is_answered_only_so_often(federation):
    federation.policy("north", repeats=2)
    gate = SiteGate(federation.site("north"))
    assert [asked(gate, request(federation), value) for value in (1, 2)] == [None, None]
    renamed = request(federation, run="another run")
    assert asked(gate, renamed, 3) == Refusal(RefusalCode.REPEATS, 2)
    assert asked(gate, request(federation, round=2), 3) is None


def test_the_same_question_costs_nothing(federation):
    gate = SiteGate(federation.site("north"))
    assert [asked(gate, request(federation), 1) for _ in range(3)] == [None] * 3
    assert asked(gate, request(federation), 2) == Refusal(RefusalCode.REPEATS, 1)


def test_who_removed_the_record_could_ask_again(federation, monkeypatch):
    """A site that counts what its record has, and does not miss lines."""
    site = federation.site("north")
    monkeypatch.setattr("fedrel.deployment.site_gate.check_whole", lambda folder: None)
    monkeypatch.setattr(
        Answered,
        "others",
        lambda self, run, request, asked: len(check(site.audit).lines) if site.audit.exists() else 0,
    )
    assert asked(SiteGate(site), request(federation), 1) is None
    assert asked(SiteGate(site), request(federation), 2) == Refusal(RefusalCode.REPEATS, 1)
    site.audit.unlink()
    site.audit.with_suffix(".head").unlink()
    assert asked(SiteGate(site), request(federation), 2) is None


def test_who_removes_the_record_does_not_reset_the_counts(federation):
    site = federation.site("north")
    assert asked(SiteGate(site), request(federation), 1) is None
    site.audit.unlink()
    site.audit.with_suffix(".head").unlink()
    with pytest.raises(UserError, match="line 1 is missing: the record had 1 lines"):
        asked(SiteGate(site), request(federation), 2)


def test_without_a_limit_of_rounds_as_many_as_were_published(federation):
    tree = {"coordinator": "localhost:9092", "allow": {**ALLOW}}
    del tree["allow"]["rounds"]
    (federation.site("north").path / "site.toml").write_text(tomli_w.dumps(tree))
    gate = SiteGate(federation.site("north"))
    assert gate.allow(request(federation, round=2)) is None
    assert gate.allow(request(federation, round=3)) == Refusal(RefusalCode.ROUNDS, 2)


def test_the_record_keeps_what_was_asked_and_by_which_rules(federation):
    gate = SiteGate(federation.site("north"))
    assert asked(gate, request(federation), 1) is None
    (line,) = check(federation.site("north").audit).lines
    assert len(line.entry.asked.sha256) == 64
    assert line.entry.policy["allow"]["methods"] == ALLOW["methods"]
    assert line.entry.policy["privacy"]["levels"] == 16


def test_a_change_of_policy_takes_effect_at_once(federation):
    assert SiteGate(federation.site("north")).allow(request(federation)) is None
    federation.policy("north", rounds=0)
    assert SiteGate(federation.site("north")).allow(request(federation)) == Refusal(RefusalCode.ROUNDS, 0)


SITE_LEVEL = ["privacy.dp.level=site", "privacy.dp.noise=1", "privacy.dp.clip=1"]


@pytest.mark.parametrize("name", methods())
def test_where_differential_privacy_is_demanded_every_method_is_refused(name):
    named = {"methods": tuple(methods()), "may_leave": ("Holdings",), "rounds": 1, "epochs": 3}
    allow = Allowed(**named, differential_privacy=True)
    config = tiny(method=f'"{name}"')
    policy = SitePolicy(coordinator="localhost:9092", allow=allow, privacy={"levels": 0})
    demanded = "allow.differential_privacy is demanded, and "
    assert objections(policy, config) == [f"{demanded}the experiment has no [privacy.dp]"]
    by_coordinator = config.with_settings(SITE_LEVEL)
    assert objections(policy, by_coordinator) == [
        f"{demanded}the coordinator, which adds the noise, sees the answers without it"
    ]
    without = allow.model_copy(update={"differential_privacy": False})
    assert not objections(policy.model_copy(update={"allow": without}), config)


def test_secure_sums_may_be_demanded():
    allow = Allowed(methods=("fedavg",), may_leave=("Holdings",), epochs=3)
    privacy = {"require_secure_sum": True}
    policy = SitePolicy(coordinator="localhost:9092", allow=allow, privacy=privacy)
    problem = "privacy.require_secure_sum is demanded, and the experiment has no secure sums"
    assert objections(policy, tiny(method="fedavg")) == [problem]
    assert not objections(policy, tiny(method="fedavg", privacy__secure_sum=True))


def test_what_must_stay_stays_in_every_kind_of_the_message():
    allow = Allowed(may_leave=("ControlledUpdate",), must_stay=("Update.weights/words.weight",))
    assert not allow.lets("ControlledUpdate", "weights/words.weight/index")
    assert allow.lets("ControlledUpdate", "weights/filters")


def test_simultaneous_requests_are_counted_too(federation):
    federation.policy("north", repeats=2)
    gates = [SiteGate(federation.site("north")) for _ in range(4)]
    assert [gate.allow(request(federation)) for gate in gates] == [None] * 4
    left = [gate.record(request(federation), UPDATE) for gate in gates]  # questions that nobody knows more of
    assert left == [None, None, *[Refusal(RefusalCode.REPEATS, 2)] * 2]


def test_with_a_broken_record_nothing_is_answered(federation):
    gate = SiteGate(federation.site("north"))
    assert gate.record(request(federation), UPDATE) is None
    audit = federation.site("north").audit
    audit.write_bytes(audit.read_bytes().replace(b'"round":1', b'"round":2'))
    with pytest.raises(UserError, match="nothing leaves"):
        gate.allow(request(federation, round=0, phase=HOLDINGS, gives="Holdings"))


def test_a_composed_method_is_private_only_if_every_part_is():
    def reason(name):
        return not_private(tiny(method=f'"{name}"').with_settings([*SITE_LEVEL, "privacy.dp.level=sentence"]))

    assert reason("fedprox") is None
    assert "claims" in reason("fedprox+lazy-mil") and reason("fedprox+lazy-mil") == reason("lazy-mil+fedprox")


def test_kinds_of_message_are_the_classes_in_use():
    assert all(
        vars(sys.modules[kind.__module__])[name] is kind
        for name, kind in kinds_of_message().items()
        if kind.__module__.startswith("fedrel.")
    )


def test_an_empty_policy_allows_nothing(federation):
    tree = {"coordinator": "localhost:9092"}
    (federation.site("north").path / "site.toml").write_text(tomli_w.dumps(tree))
    gate = SiteGate(federation.site("north"))
    assert gate.allow(request(federation)) == Refusal(RefusalCode.METHOD)
    first = request(federation, round=0, phase=HOLDINGS, gives="Holdings")
    assert gate.allow(first) == Refusal(RefusalCode.METHOD)


def test_what_cannot_be_read_is_recorded_too(federation):
    federation.site("north").seal.unlink()
    reason = SiteGate(federation.site("north")).refuse(None, Refusal(RefusalCode.UNFIT), "no config in it")
    assert reason == Refusal(RefusalCode.UNFIT)
    assert "no config in it" in notes(federation)[0]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"allow": {"methods": ["lazymil"]}}, "no method is called 'lazymil'\nhint: did you mean 'lazy-mil'"),
        (
            {"allow": {"may_leave": ["Updates"]}},
            "no message is called 'Updates'\nhint: did you mean 'Update'",
        ),
        ({"allow": {"must_stay": ["Update.weight"]}}, "no field 'weight'\nhint: did you mean 'weights'"),
        ({"allow": {"epoch": 3}}, "unknown key 'allow.epoch'\nhint: did you mean 'epochs'"),
        ({"allow": {"rounds": -1}}, "allow.rounds: Input should be greater than or equal to 0"),
        ({"alow": {}}, "unknown key 'alow'\nhint: did you mean 'allow'"),
        ({"coordinator": "localhost"}, "coordinator: String should match"),
    ],
)
def test_a_misspelt_rule_is_an_error(tmp_path, tree, message):
    (tmp_path / "site.toml").write_text(tomli_w.dumps({"coordinator": "localhost:9092"} | tree))
    with pytest.raises(UserError, match=message) as found:
        check_names(read_policy(tmp_path), tmp_path)
    assert "site.toml" in str(found.value)


def test_kinds_of_message_are_the_classes_that_everybody_imports():
    """A dataclass with slots is made from another class of the same name, which may live on for a while."""
    from fedrel.federation.messages import Update
    from fedrel.methods.scaffold import ControlledUpdate

    kinds = kinds_of_message()
    assert kinds["Update"] is Update and issubclass(kinds["ControlledUpdate"], Update)
    assert kinds["ControlledUpdate"] is ControlledUpdate
