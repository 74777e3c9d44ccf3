"""What an attack got, as records: a file for each method under each defence."""

from __future__ import annotations

from typing import Any

from fedrel.evaluation.outcome import Record


class WordLeak(Record):
    """Telling words: those that at most one site in ten has."""

    precision: float
    recall: float
    guessing: float
    """The precision of naming as many at random."""
    words: float
    """How many a site has, on average."""


class MembershipLeak(Record):
    """Whether a sentence was trained on."""

    auc: float
    tpr_at_1_percent: float
    tpr_at_0_1_percent: float
    """The share of members that are found while 1 or 0.1 % of the others are taken for members."""
    members: int
    outsiders: int


class CountLeak(Record):
    """Each relation's share at a site: Pearson's r between found and true."""

    correlation: float
    beyond_average: float
    """Of the differences from an average site, which is what nobody knew before."""
    guessing: float
    """The correlation of one who takes every site for the average one."""


class FactLeak(Record):
    """Facts that a site's text mentions."""

    precision: float
    recall: float
    guessing: float
    """The precision of naming as many of those facts that the attacker's own text mentions most."""
    facts: int


class TokenLeak(Record):
    """Tokens of a site's sentences, read from a transformer's update."""

    f1: float
    rouge_1: float | None = None
    rouge_2: float | None = None
    """Of the sentences that the attacker puts together of what it read, against those that they are nearest to."""


class LeakCell(Record):
    """One method under one defence: what each attack got, or why it got nothing."""

    method: str
    defence: str
    settings: dict[str, Any]
    config: str
    rounds: int
    seen: str
    """`answers` of single sites, or their `sum`."""
    attacked: int = 0
    """How many answers of sites were attacked, over all rounds."""
    shadows: int = 0
    words: WordLeak | None = None
    tokens: TokenLeak | None = None
    membership: MembershipLeak | None = None
    counts: CountLeak | None = None
    facts: FactLeak | None = None
    epsilon: float | None = None
    """With differential privacy: ε that these rounds cost, of the site that they cost most."""
    why_not: dict[str, str] = {}
    """By attack, why there is nothing to attack."""
    refused: str | None = None
    """Why the method cannot have this defence."""
    stopped: str | None = None
    """Why the rounds could not go on."""
    chosen: dict[str, str] = {}
    """By attack, the settings that told shadow sites' text best, and in how many rounds each was taken."""
    dev: dict[str, float] = {}
    """The config's metric after these rounds."""
    seconds: float = 0.0
    commit: str | None = None


ATTACKS = {
    "words": "which telling words (those that at most one site in ten has) a site's text has: precision, recall",
    "tokens": "which tokens are in a site's sentences, by the span check of DAGER: F1; ROUGE-1 and -2 "
    "of the sentences made of them",
    "membership": "whether a sentence was trained on: AUC, and the share of members found at 1 % and at 0.1 % "
    "false alarms",
    "counts": "how frequent each relation is at a site: r of the differences from an average site, and r of all",
    "facts": "which facts a site's text mentions: precision, recall",
}
