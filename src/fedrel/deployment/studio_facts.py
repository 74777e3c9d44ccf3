"""What the studio shows of a federation's folder: the coordinator's status, or a site's policy and record."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedrel.deployment.answered import PrivacyBudget, Spent
from fedrel.deployment.audit import describe_fields
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder
from fedrel.deployment.policy import REFUSAL, SITE_TOML, Allowed, Privacy, kinds_of_message, read_policy
from fedrel.deployment.record_check import check_record
from fedrel.deployment.status import NOT_RUNNING, connected, federation_status
from fedrel.runs.folder import MetricsFile
from fedrel.runs.run_notes import read_state
from fedrel.studio.formatting import several
from fedrel.studio.live.federation_pages import (
    CoordinatorFacts,
    Departure,
    Facts,
    KindTotal,
    LeftOut,
    Member,
    SiteFacts,
)

SHOWN = 200  # of the answers that left a site
_ASK_EVERY = 20.0  # seconds; who is connected is asked with Flower's own command, which takes a while


def describe_federation(folder: Path) -> Callable[[], Facts] | None:
    """A function that looks at a coordinator's or a site's folder; None for any other folder."""
    if (folder / "federation.toml").is_file():
        return CoordinatorLook(CoordinatorFolder(folder))
    if (folder / SITE_TOML).is_file():
        return partial(site_facts, SiteFolder(folder))
    return None


class CoordinatorLook:
    """Looks at a coordinator's folder, and now and then asks the superlink who is connected."""

    def __init__(self, folder: CoordinatorFolder) -> None:
        self._folder = folder
        self._asked, self._nodes = -_ASK_EVERY, dict[str, str]()

    def __call__(self) -> CoordinatorFacts:
        """What is known now."""
        if time.monotonic() - self._asked >= _ASK_EVERY:
            self._nodes, self._asked = self._connected(), time.monotonic()
        found = federation_status(self._folder, self._nodes)
        facts = CoordinatorFacts(
            members=[
                Member(one.name, one.node, one.sentences, one.last_answer, one.round) for one in found.sites
            ],
        )
        if found.run is None:
            return facts
        out = self._folder.runs / found.run
        state, names = read_state(out), self._folder.federation.sites
        left_out = [
            LeftOut(one.round, names[refusal.site], refusal.message, refusal.reason)
            for one in MetricsFile(out / "metrics.jsonl").rounds()
            for refusal in one.refused
        ]
        return CoordinatorFacts(
            members=facts.members,
            run=found.run,
            round=found.round,
            rounds=state.rounds if state else None,
            up=found.up,
            down=found.down,
            left_out=left_out[::-1],
        )

    def _connected(self) -> dict[str, str]:
        try:
            socket.create_connection(("127.0.0.1", self._folder.federation.port), 0.5).close()
        except OSError:
            return dict.fromkeys(self._folder.federation.sites, NOT_RUNNING)
        return connected(self._folder)


def site_facts(folder: SiteFolder) -> SiteFacts:
    """A site's policy in plain words, and what its record says."""
    policy, audit = read_policy(folder.path), check_record(folder, last_only=True)
    times: Counter[str] = Counter(line.entry.message for line in audit.lines)
    sizes: Counter[str] = Counter()
    for line in audit.lines:
        sizes[line.entry.message] += line.entry.bytes
    prepared = folder.seal.is_file()
    departures = [
        Departure(
            line=line.number,
            time=line.entry.time.replace("T", " ").removesuffix("+00:00"),
            round=line.entry.round,
            message=line.entry.message,
            what=line.entry.note or describe_fields(line.entry.fields),
            bytes=line.entry.bytes,
            refusal=line.entry.message == REFUSAL,
        )
        for line in audit.lines[-SHOWN:]
    ]
    files = ", ".join(policy.data.files) or "no files"
    return SiteFacts(
        name=folder.name,
        coordinator=policy.coordinator,
        prepared=prepared,
        sentences=folder.sentences if prepared else None,
        policy=[
            f"It reads {files} (format {policy.data.format}).",
            *policy_in_words(policy.allow),
            *budget_in_words(policy.privacy, PrivacyBudget(folder.privacy).read()),
        ],
        totals=[KindTotal(kind, times[kind], sizes[kind]) for kind in sorted(times)],
        departures=departures[::-1],
        recorded=len(audit.lines),
        broken=f"line {audit.broken.line} {audit.broken.reason}" if audit.broken else "",
        torn=len(audit.torn),
        chain=audit.chain,
    )


def budget_in_words(privacy: Privacy, spent: Spent) -> list[str]:
    """What its answers have cost, and may cost; nothing of a site that knows no differential privacy."""
    if not spent.answers and privacy.max_epsilon is None:
        return []
    unnoised = (
        f" Besides, {spent.unnoised:,} answers left without noise, which no ε covers."
        if spent.unnoised
        else ""
    )
    most = "" if privacy.max_epsilon is None else f", and may cost {privacy.max_epsilon:g} in all"
    cost = f"ε {spent.epsilon(privacy.delta):.3g}{most}, with δ = {privacy.delta:g}"
    return [f"Its answers with noise, {spent.answers:,} so far, cost {cost}.{unnoised}"]


def policy_in_words(allow: Allowed) -> list[str]:
    """The rules of `[allow]` as sentences; a rule that has no sentence here is given as it is written."""
    said = {
        "methods": f"It answers requests of these methods: {several(allow.methods)}."
        if allow.methods
        else "It answers no method: nothing leaves.",
        "may_leave": _may_leave(allow),
        "must_stay": f"Whatever else is allowed, this stays here: {several(allow.must_stay)}."
        if allow.must_stay
        else "",
        "rounds": "It answers as many rounds as were published."
        if allow.rounds is None
        else f"It answers up to round {allow.rounds}."
        if allow.rounds
        else "It answers in no round.",
        "epochs": f"It trains at most {allow.epochs} passes over its text in a round.",
        "repeats": f"Of one kind, it answers at most {allow.repeats} different requests in a round.",
        "alone": f"No sentence wins with few others in more than {allow.alone} rounds.",
        "step": "Global weights that went farther than its own training explains are refused: "
        f"more than {allow.step:g} times its own step in a round, "
        f"or more than {allow.against:g} times against its own update.",
        "against": "",
        "examples": f"No answer leaves that was made from fewer than {allow.examples:,} examples."
        if allow.examples > 1
        else "An answer may be made from a single example.",
        "differential_privacy": "Answers that are not differentially private when they leave are refused."
        if allow.differential_privacy
        else "Answers need not be differentially private.",
    }
    others = {
        name: f"{name} = {getattr(allow, name)!r}" for name in type(allow).model_fields if name not in said
    }
    return [line for line in (*said.values(), *others.values()) if line]


def _may_leave(allow: Allowed) -> str:
    kinds = kinds_of_message()
    parts = []
    for rule in allow.may_leave:
        kind = kinds.get(rule)
        about = ((kind.__doc__ or "") if kind else "").partition("\n")[0].removeprefix("Up: ").rstrip(".")
        parts.append(f"{rule} ({about})" if about else rule)
    return f"May leave: {'; '.join(parts)}." if parts else "No kind of message may leave."
