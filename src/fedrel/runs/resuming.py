"""Whether a run goes on from what is in its folder: a run that is not its own is refused, and left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.files import ELSEWHERE
from fedrel.runs.checkpoint import Checkpoint, Checkpoints
from fedrel.runs.folder import MetricsFile
from fedrel.runs.records import Round
from fedrel.runs.run_end import went_beyond


def resumed(
    config: Config,
    out: Path,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    resume: bool,
    from_round: int | None,
) -> Checkpoint | None:
    """Where the run goes on, if there is one in the folder that this one can go on with."""
    checkpoint = checkpoints.latest()
    if checkpoint is not None and not resume:
        hint = f"go on with it by --resume, or {ELSEWHERE}"
        raise UserError("there is a run in this folder already", file=out, hint=hint)
    if checkpoint is not None and checkpoint.round > config.training.rounds:
        problem = f"has {checkpoint.round} rounds already, but training.rounds is {config.training.rounds}"
        raise UserError(problem, file=out, hint=f"ask for at least as many rounds, or {ELSEWHERE}")
    if from_round is not None and (checkpoint is None or from_round != checkpoint.round):
        earlier = checkpoints.of_round(from_round)
        checkpoint = checkpoint and checkpoint.back_to(earlier)
    if checkpoint is not None:
        refuse_if_longer(config, metrics.until(checkpoint.round, checkpoint.metrics), out)
    return checkpoint


def refuse_if_longer(config: Config, rounds: Sequence[Round], out: Path) -> None:
    """Stop before a run is resumed that was more patient than the config."""
    if (end := went_beyond(config, rounds)) is not None:
        problem = (
            f"has {len(rounds)} rounds already, but ends after round {end} with this evaluation.patience"
        )
        raise UserError(problem, file=out, hint=f"ask for more patience, or {ELSEWHERE}")
