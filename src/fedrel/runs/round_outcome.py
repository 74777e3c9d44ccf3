"""How a round ended: its record in `metrics.jsonl`, or why it was lost and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedrel.errors import UserError
from fedrel.federation.coordinator import DivergedError
from fedrel.federation.messages import LARGEST, UNVOUCHED
from fedrel.federation.rounds import RoundNotes
from fedrel.federation.site import DIVERGED
from fedrel.privacy.trust import described
from fedrel.runs.checkpoint import Checkpoint
from fedrel.runs.records import Round, Spent
from fedrel.tensors.weights import Weights

SHOWN = 10  # sites that are named when a round fails


@dataclass(eq=False)
class LostRoundError(Exception):
    """A round that has failed as often as it may be tried: no model came of it."""

    round: int
    problem: str
    notes: RoundNotes
    mean_diverged: bool
    names: Sequence[str]
    """Of the sites, by number."""
    blamed: dict[int, float] = field(default_factory=dict)
    """Sites whose updates stood out in this round, or in those since the best one, and by how much."""
    before: Sequence[int] = ()
    """The sites of the round before, whose updates this round's weights are made of."""

    @property
    def diverged(self) -> bool:
        """Whether weights grew out of bounds, at the sites or in the mean, rather than sites being away."""
        signs = (DIVERGED, "not finite", f"above {LARGEST}")
        reasons = [one["reason"] for one in self.notes.refused]
        return self.mean_diverged or any(sign in reason for reason in reasons for sign in signs)

    def blame(self, rounds: Sequence[Round], best_round: int) -> None:
        """Add the sites that stood out in the rounds whose model this one began with, since the best."""
        self.before = rounds[-1].active if rounds else ()
        for one in rounds:
            if one.round > best_round:
                for site, factor in one.stood_out.items():
                    self.blamed[site] = max(factor, self.blamed.get(site, 0.0))

    def error(self, learning_rate: float) -> UserError:
        """The round's failure as the user reads it. If some sites' updates stood out, no others are named."""
        said = [f"{self.names[one['site']]}: {one['reason']}" for one in self.notes.refused]
        hint = f"the checkpoint of round {self.round - 1} is kept: repair the sites and go on with --resume"
        if self.diverged and self.blamed:
            said = [described(self.blamed, dict(enumerate(self.names)))]
            hint = (
                "find out what happened there; go on without these sites, or with --resume --from ROUND and "
                "aggregation.norm_bound = 2"
            )
        elif self.before and all(UNVOUCHED in one["reason"] for one in self.notes.refused):
            suspects = ", ".join(self.names[site] for site in self.before)
            hint = (
                f"the tag of an update of round {self.round - 1} is false, of one of these sites: {suspects}. "
                f"Leave them out one by one, with --resume --from {max(self.round - 2, 0)} (docs/protection.md)"
            )
        elif self.diverged:
            hint = (
                f"lower the learning rate, training.learning_rate, which is {learning_rate:g}, and begin anew"
            )
        said = list(dict.fromkeys(said))
        more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        about = "; ".join(said[:SHOWN] + more) or "no site answered"
        return UserError(f"round {self.round}: {self.problem} ({about})", hint=hint)


def check_weights(weights: Weights, state: Weights, before: Checkpoint) -> None:
    """`DivergedError` for weights, or a state, that must not be saved: no round could go on from them."""
    changed = {
        name: tensor
        for name, tensor in state.items()
        if before.state.get(name) is not tensor and tensor.dtype.kind == "f"  # tags of updates are no numbers
    }
    for name, tensor in [*weights.items(), *changed.items()]:
        # A comparison with NaN is false.
        if tensor.size and not (tensor.min() >= -LARGEST and tensor.max() <= LARGEST):
            raise DivergedError(
                f"{name} of the new model holds a value that is not finite or above {LARGEST}"
            )


def round_record(
    number: int,
    notes: RoundNotes,
    dev: Mapping[str, float] | None,
    seconds: float,
    epochs: int,
    began_from: int | None = None,
    spent: Spent | None = None,
) -> Round:
    """A round as `metrics.jsonl` has it; `notes` are what the coordinator and, in simulation, the sites noted."""
    weight = sum(entry.weight for entry in notes.journals.values())
    expressing = sum(entry.expressing for entry in notes.journals.values())
    watched: Counter[int] = Counter()  # of floats
    for entry in notes.journals.values():
        watched.update(entry.watched)
    return Round.model_validate(
        {
            "round": number,
            "loss": None if spent else notes.loss,  # sites that noise hides do not tell it
            "dev": dev,
            "bytes": notes.traffic.summary(),
            "seconds": round(seconds, 3),
            "selection_precision": expressing / weight if weight else None,
            "active": notes.active,
            "examples": notes.examples,
            "clipped": notes.clipped,
            "refused": notes.refused,
            "at_sites": {
                site: {"loss": None if spent else notes.losses.get(site), "up": notes.sent.get(site, 0)}
                for site in sorted({*notes.sent, *notes.losses})
            },
            "watched": {row: round(w / epochs, 4) for row, w in watched.items()},
            "class_distances": {site: d.round(4).tolist() for site, d in notes.class_distances.items()}
            or None,
            "stood_out": notes.moves.stood_out(),
            "left_out": notes.left_out,
            "excluded": notes.excluded,
            "began_from": began_from,
            "privacy": spent,
        }
    )
