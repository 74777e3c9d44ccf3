"""Mutants that no test can kill, each with the reason.

They do the same as the code. What a test could notice is not listed here: it has a test.
"""

from __future__ import annotations

_SAME_CLASS = "two classes are equal only if they are the same one"
_NOT_EVALUATED = "the annotation of a field of a plain dataclass is never evaluated"

REASONS: dict[tuple[str, str], str] = {
    ("methods.fedatt", "self._rest = dict.fromkeys(base, 1.0)"): (
        "the first site's share multiplies what was there before by exp(-inf) = 0"
    ),
    ("methods.controls", "name: Rows(move.index, c[name][move.index], 1.0)"): (
        "`plus` adds the rows that a table lists, and does not read what it says of the others"
    ),
    ("methods.baselines", "return bags if self.share >= 1"): "a share is at most 1: its field says so",
    ("methods.composition", "others = [other for other in parts if other != part]"): _SAME_CLASS,
    ("methods.composition", "return other != part and issubclass"): _SAME_CLASS,
    ("methods.moon", "read = batch.rows[reading.weights.cpu().numpy() != 0]"): (
        "a head's weights are shares of a bag, never below 0"
    ),
    ("methods.scaffold", "if self.global_rate == 0:"): (
        "at a rate of 1 the line below gives 0 * w + 1 * mean, which is the mean: the branch only saves work"
    ),
    ("federation.messages", "shape: tuple[str"): _NOT_EVALUATED,
    ("federation.messages", "low: float"): _NOT_EVALUATED,
    ("federation.messages", "high: float"): _NOT_EVALUATED,
}
"""By module, and how a changed line begins."""


def reason_for(module: str, after: str) -> str:
    """Why a mutant survives; empty if that is not known, and so a test is missing."""
    name = module.removeprefix("fedrel.")
    found = (why for (where, line), why in REASONS.items() if where == name and after.startswith(line))
    return next(found, "")
