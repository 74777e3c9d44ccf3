"""Whether a site's record is whole: its chain and head, its signatures, and what is known of it from elsewhere.

Someone who may write the site's files, but lacks its key, can neither change the record nor replace it by another.
Whoever cuts lines off, or removes all of it, must do the same with the counts of answered questions, which name the
record's length and last chain value. The coordinator has the last chain value too: it came with every answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedrel.deployment.answered import Answered, PrivacyBudget
from fedrel.deployment.audit import Audit, Break, Line, check, fail_if_broken
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.keys import is_signed


def check_record(folder: SiteFolder, *, last_only: bool = False) -> Audit:
    """What a check of a site's whole record finds; `broken` also for what only the other files tell.

    The last signature covers all lines before it, so `last_only` checks no other.
    """
    audit = check(folder.audit)
    if audit.broken is None:
        checked = audit.lines[-1:] if last_only else audit.lines
        broken = _cut_off(folder, audit) or _not_signed(folder, audit, checked) or _forgotten(folder, audit)
        return replace(audit, broken=broken)
    return audit


def check_whole(folder: SiteFolder) -> Audit:
    """The same; `UserError` if the record is broken."""
    audit = check_record(folder, last_only=True)
    fail_if_broken(audit, folder.audit)
    return audit


def _cut_off(folder: SiteFolder, audit: Audit) -> Break | None:
    known = Answered(folder.answered).record
    if known is None:
        if any(line.entry.policy for line in audit.lines):
            return Break(1, f"stands in a record whose counts are missing ({folder.answered.name})")
        return None  # written by an earlier version, which kept none
    lines, chain = known
    if len(audit.lines) < lines:
        return Break(len(audit.lines) + 1, f"is missing: the record had {lines} lines")
    if lines and audit.lines[lines - 1].chain != chain:
        return Break(lines, "is not the one that was written: the record was replaced")
    return None


def _forgotten(folder: SiteFolder, audit: Audit) -> Break | None:
    """What answers cost is kept before they are recorded: the account has them all, or it is not the right one."""
    kept, name = PrivacyBudget(folder.privacy).read(), folder.privacy.name
    lines = [line for line in audit.lines if line.entry.privacy]
    if not lines:
        return None
    most, plain, dearest = (
        max(lines, key=lambda line: line.entry.privacy.get(key, 0.0))
        for key in ("answers", "unnoised", "epsilon")
    )
    if (told := most.entry.privacy["answers"]) > kept.answers:
        return Break(most.number, f"counts {told:.0f} answers that cost privacy, {name} {kept.answers}")
    if (told := plain.entry.privacy.get("unnoised", 0)) > kept.unnoised:
        return Break(plain.number, f"counts {told:.0f} answers without noise, {name} {kept.unnoised}")
    told, epsilon = dearest.entry.privacy["epsilon"], kept.epsilon(dearest.entry.privacy["delta"])
    if epsilon < told - 1e-6:
        return Break(dearest.number, f"has ε {told:g}, {name} {epsilon:g}")
    return None


def _not_signed(folder: SiteFolder, audit: Audit, checked: Sequence[Line]) -> Break | None:
    """Lines of earlier versions, at the beginning, have no signature; every later one has."""
    public = folder.path / "site.pub"
    if not public.exists():
        signed = any(line.signed for line in audit.lines)
        return Break(1, "cannot be checked: site.pub is missing") if signed else None
    signs = False
    for line in audit.lines:
        signs = signs or bool(line.signed or line.entry.policy)
        if signs and not line.signed:
            return Break(line.number, "is not signed, though the site signs every line")
    for line in checked:
        if line.signed and not is_signed(public, line.chain.encode(), line.signed):
            return Break(line.number, "has a signature that is not this site's")
    return None
