"""What the studio says of a coordinator's and a site's folder, and that hostile reasons stay text."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from fedrel.deployment import studio_facts
from fedrel.deployment.answered import Spent
from fedrel.deployment.audit import append, describe
from fedrel.deployment.policy import Allowed, Privacy
from fedrel.deployment.studio_facts import (
    budget_in_words,
    describe_federation,
    policy_in_words,
    site_facts,
)
from fedrel.privacy.differential_privacy import Steps, epsilon

pytest.importorskip("starlette", reason="needs pip install 'fedrel[studio]'")

from starlette.testclient import TestClient

from fedrel.studio.live.access import address
from fedrel.studio.live.studio_app import studio_app
from tests.studio.html_page import Page

SCRIPT = "<script>alert(1)</script>"


def page(folder, path="/federation"):
    app = studio_app(folder, address("127.0.0.1", 8420), describe_federation)
    return Page(TestClient(app, base_url="http://127.0.0.1:8420").get(path).text)


def leave(site, round_, message, note="", **arrays):
    append(site.audit, describe("run", round_, "train", message, arrays, note))


def test_a_folder_of_runs_has_no_such_page(tmp_path):
    assert describe_federation(tmp_path) is None
    assert "/federation" not in [one["href"] for one in page(tmp_path, "/").all("a")]


def test_the_coordinator(federation, monkeypatch):
    folder = federation.coordinator
    monkeypatch.setattr(studio_facts.socket, "create_connection", lambda *_: open("/dev/null"))  # noqa: PTH123, SIM115
    monkeypatch.setattr(studio_facts, "connected", lambda _: {"north": "online", "south": "offline"})
    look = describe_federation(folder.path)
    assert (look().run, look().online, len(look().members)) == (None, 1, 3)
    assert "No run yet" in page(folder.path).words
    out = folder.runs / "first"
    out.mkdir(parents=True)
    sites = [{"name": "north", "sentences": 1500, "last_answer": time.time() - 60, "round": 2}]
    (out / "federation.json").write_text(json.dumps({"sites": sites}))
    about = {"phase": "training", "method": "fedavg", "seed": 1, "rounds": 9, "metric": "auc"}
    (out / "state.json").write_text(json.dumps(about))
    refused = [{"site": 1, "message": "Update", "reason": f"does not allow {SCRIPT}"}]
    lines = [
        {"round": 1, "bytes": {"up": 1000, "down": 3000}, "refused": refused},
        {"round": 2, "bytes": {"up": 1000, "down": 3000}, "refused": refused},
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = look()
    assert (facts.run, facts.round, facts.rounds, facts.up, facts.down) == ("first", 2, 9, 2000, 6000)
    assert [(one.round, one.site) for one in facts.left_out] == [(2, "south"), (1, "south")]
    shown = page(folder.path)
    assert "1 of 3 sites are connected. Run first is in round 2 of 9." in " ".join(shown.words.split())
    assert f"does not allow {SCRIPT}" in shown.words
    assert all("src" in one for one in shown.all("script"))
    assert "/run?id=runs/first" in [one["href"] for one in shown.all("a")]


def test_a_coordinator_that_is_not_running_is_said_at_once(federation):
    facts = describe_federation(federation.coordinator.path)()
    assert {one.node for one in facts.members} == {"coordinator not running"}


def test_a_site(federation):
    site = federation.site("north")
    leave(site, 0, "Holdings", sentences=np.asarray(12))
    leave(site, 1, "Update", weights=np.zeros((3, 4), np.float32))
    leave(site, 2, "Refusal", note=f"asked for {SCRIPT}", why=np.asarray(3))
    facts = site_facts(site)
    assert (facts.name, facts.recorded, facts.broken, facts.prepared) == ("north", 3, "", True)
    assert facts.sentences == site.sentences
    assert [(one.message, one.times, one.bytes) for one in facts.totals] == [
        ("Holdings", 1, 8),
        ("Refusal", 1, 8),
        ("Update", 1, 48),
    ]
    assert [one.line for one in facts.departures] == [3, 2, 1]
    assert facts.departures[1].what == "weights: 3 by 4 float32"
    shown = page(site.path)
    assert "3 answers left this site, 64 B of numbers." in shown.words
    assert "every line fits" in shown.words and facts.chain in shown.words
    assert f"asked for {SCRIPT}" in shown.words and all("src" in one for one in shown.all("script"))
    assert "A site keeps no runs." in page(site.path, "/").words


def test_a_changed_record_is_shown_as_broken(federation):
    site = federation.site("south")
    for number in (1, 2):
        leave(site, number, "Update", weights=np.zeros(3))
    text = site.audit.read_text()
    site.audit.write_text(text.replace('"round":1', '"round":7'))
    assert site_facts(site).broken.startswith("line 1 was changed")
    assert "The record is broken" in page(site.path).words


def test_a_budget_in_plain_words():
    pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")
    assert budget_in_words(Privacy(), Spent()) == []
    (said,) = budget_in_words(Privacy(max_epsilon=8), Spent())
    assert said == ("Its answers with noise, 0 so far, cost ε 0, and may cost 8 in all, with δ = 1e-05.")
    (said,) = budget_in_words(Privacy(), Spent(2, (Steps(4.0, 1.0, 2),)))
    assert f"2 so far, cost ε {epsilon(4.0, 1.0, 2, 1e-5):.3g}, with δ" in said


def test_a_policy_in_plain_words():
    said = policy_in_words(
        Allowed(
            methods=("fedavg", "lazy-mil"),
            may_leave=("Holdings", "Update"),
            must_stay=("Update.examples",),
            rounds=50,
            epochs=2,
            examples=20,
        )
    )
    text = " ".join(said)
    assert "It answers requests of these methods: fedavg and lazy-mil." in said
    assert "Update (a site's weights after local training" in text
    assert "It answers up to round 50." in said
    assert "No answer leaves that was made from fewer than 20 examples." in said
    assert "Whatever else is allowed, this stays here: Update.examples." in said
    nothing = policy_in_words(Allowed())
    assert {"It answers no method: nothing leaves.", "No kind of message may leave."} <= set(nothing)


def test_every_rule_is_said():
    """A rule that has no sentence yet is given as it is written."""

    class Later(Allowed):
        secrecy: bool = True

    assert "secrecy = True" in policy_in_words(Later())
