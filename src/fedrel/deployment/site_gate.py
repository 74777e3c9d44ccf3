"""The site's gate: every request passes it before anything is computed, every answer before it leaves.

What is refused, and why, is written to the site's record. The coordinator is told a number that stands for the
reason, and never more of the site than `site.toml` itself says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrel.deployment import policy
from fedrel.deployment.artefacts import agreed_part, differences
from fedrel.deployment.folders import SiteFolder
from fedrel.federation.flower.host import Refusal, RefusalCode
from fedrel.files import turn_in
from fedrel.privacy.audit import append, describe, sound

if TYPE_CHECKING:
    from fedrel.federation.flower.host import Request
    from fedrel.federation.messages import Arrays


REFUSAL = "Refusal"  # what the record calls a reason that left instead of an answer

_DIFFERS = {
    "config": RefusalCode.CONFIG,
    "relations": RefusalCode.RELATIONS,
    "vocabulary": RefusalCode.VOCABULARY,
    "encoder": RefusalCode.ENCODER,
    "knowledge_base": RefusalCode.KNOWLEDGE_BASE,
    "validation": RefusalCode.VALIDATION,
}


def open_gate(site: Path) -> SiteGate:
    """The gate of a site's folder, as its `site.toml` is now."""
    return SiteGate(SiteFolder(site))


class SiteGate:
    """Decides for a site by its policy and by what it was prepared with, and keeps its record."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._allow = policy.read_policy(folder.path).allow

    def allow(self, request: Request) -> Refusal | None:
        """Why a request is refused before anything is computed for it, or None."""
        for rule in (self._agreement, self._method, self._message, self._limits):
            if found := rule(request):
                reason, note = found
                return self.refuse(request, reason, note)
        return None

    def record(self, request: Request, arrays: Arrays) -> Refusal | None:
        """Write down what is about to leave, or why it must not."""
        kept = [name for name in sorted(arrays) if not self._allow.lets(request.gives, name)]
        if kept:
            note = f"allow.may_leave does not cover {request.gives}.{kept[0]}"
            return self.refuse(request, Refusal(RefusalCode.FIELD), note)
        if "examples" in arrays and (made_from := int(arrays["examples"])) < self._allow.examples:
            note = f"made from {made_from} examples, fewer than allow.examples"
            return self.refuse(request, Refusal(RefusalCode.EXAMPLES, self._allow.examples), note)
        with turn_in(self._folder.path):  # the same question may have come more than once at a time
            if self._is_repeated(request):
                return self.refuse(
                    request, Refusal(RefusalCode.REPEATS, self._allow.repeats), "asked at the same time"
                )
            self._write(request, request.gives, arrays)
        return None

    def refuse(self, request: Request | None, reason: Refusal, note: str = "") -> Refusal:
        """Write down that a reason leaves instead of an answer; the note is for the site alone."""
        numbers = {"why": np.asarray(reason.code, np.int64), "number": np.asarray(reason.number, np.int64)}
        self._write(request, REFUSAL, numbers, f"{reason}{f' ({note})' if note else ''}")
        return reason

    # The rules, each with a reason and what the site's own record says of it.

    def _agreement(self, request: Request) -> tuple[Refusal, str] | None:
        """What all must agree on: the fingerprints, and a request for just the experiment that was published."""
        mine, asked = self._folder.prepared_with, request.artefacts
        if different := differences(mine, asked):
            name = different[0]
            note = f"{name}: prepared with {mine.get(name)}, asked with {asked.get(name)}"
            return Refusal(_DIFFERS.get(name, RefusalCode.ARTEFACTS)), note
        if request.config.get("plugins"):
            return Refusal(
                RefusalCode.CONFIG
            ), "asked to load plug-in files: a site uses only what is installed"
        wanted, published = agreed_part(request.config), agreed_part(self._folder.published)
        if keys := [key for key in published if wanted[key] != published[key]]:
            return Refusal(RefusalCode.CONFIG), f"asked for another {', '.join(keys)} than was published"
        return None

    def _method(self, request: Request) -> tuple[Refusal, str] | None:
        name = self._folder.published.method  # the request's is the same
        if refused := policy.refused_parts(self._allow, name):
            return Refusal(RefusalCode.METHOD), f"allow.methods does not name {refused[0]!r}"
        if self._allow.differential_privacy and not policy.gives_privacy(name):
            return Refusal(RefusalCode.PRIVACY), f"{name!r} gives no differential privacy"
        return None

    def _message(self, request: Request) -> tuple[Refusal, str] | None:
        """Refuse before the work is done what could not leave after it."""
        kind = policy.kinds_of_message().get(request.gives)
        if kind is None or not any(rule.split(".")[0] == request.gives for rule in self._allow.may_leave):
            return Refusal(RefusalCode.MESSAGE), f"allow.may_leave does not name {request.gives!r}"
        for field in kind.declared():
            if not self._allow.lets_field(request.gives, field):
                return Refusal(RefusalCode.FIELD), f"allow.may_leave does not cover {request.gives}.{field}"
        return None

    def _limits(self, request: Request) -> tuple[Refusal, str] | None:
        allow, epochs = self._allow, self._folder.published.training.epochs
        if request.round > allow.rounds:
            return Refusal(RefusalCode.ROUNDS, allow.rounds), f"asked for round {request.round}"
        if epochs > allow.epochs:
            return Refusal(RefusalCode.EPOCHS, allow.epochs), f"asked for {epochs} epochs"
        if self._folder.sentences < allow.examples:
            note = f"holds {self._folder.sentences} sentences, fewer than allow.examples"
            return Refusal(RefusalCode.EXAMPLES, allow.examples), note
        if self._is_repeated(request):
            return Refusal(RefusalCode.REPEATS, allow.repeats), "the coordinator asks again and again"
        return None

    def _is_repeated(self, request: Request) -> bool:
        """Whether this question of this round was answered as often as it may be; the census may always be.

        To know that, the whole record is read: with a broken one nothing is answered.
        """
        run = self._folder.fingerprint
        before = (line.entry for line in sound(self._folder.audit).lines)
        asked = (run, request.round, request.phase, request.gives)
        answered = sum((entry.run, entry.round, entry.phase, entry.message) == asked for entry in before)
        return request.round > 0 and answered >= self._allow.repeats

    def _write(self, request: Request | None, message: str, arrays: Arrays, note: str = "") -> None:
        round_, phase = (request.round, request.phase) if request else (0, "unreadable")
        run = self._folder.fingerprint if self._folder.seal.exists() else "not prepared"
        append(self._folder.audit, describe(run, round_, phase, message, arrays, note))
