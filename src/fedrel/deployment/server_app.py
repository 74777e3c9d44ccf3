"""The coordinator under Flower: a ServerApp that does what `fedrel run` does, with the sites behind a grid."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrel.errors import UserError
from fedrel.files import write_text

app = ServerApp()
_log = logging.getLogger(__name__)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the request file asks for; how it ended is left beside it."""
    request = Path(str(context.run_config["request"]))
    try:
        _run(grid, request)
    except UserError as error:  # to be shown by whoever asked: Flower would add a trace
        write_text(outcome(request), json.dumps({"mistake": error.to_json()}))
        return
    except Exception as error:
        failed = UserError(f"the run failed: {type(error).__name__}: {error}")
        write_text(outcome(request), json.dumps({"mistake": failed.to_json()}))
        raise
    write_text(outcome(request), json.dumps({"mistake": None}))


def outcome(request: Path) -> Path:
    """Where it is said how a request ended."""
    return request.with_suffix(".outcome.json")


def _run(grid: Grid, request: Path) -> None:
    from fedrel.config.schema import Config
    from fedrel.deployment.remote import RemoteSites
    from fedrel.runs.records import Round
    from fedrel.runs.train import Watcher, run
    from fedrel.studio.formatting import about_round
    from fedrel.studio.report import write_run_report

    asked = json.loads(request.read_text(encoding="utf-8"))
    config = Config.model_validate(asked["config"])
    sites = RemoteSites(grid, Path(asked["coordinator"]), config.extractor.kind)
    names = sites.names

    def say(done: Round) -> None:
        """A line for whoever follows the log."""
        left_out = "".join(f"; {names[one.site]} {one.reason}" for one in done.refused)
        about = about_round(done, config.evaluation.measure)
        print(f"round {done.round}: {about}{left_out}", flush=True)

    run(
        config,
        Path(asked["out"]),
        resume=asked["resume"],
        watcher=Watcher(round_done=say),
        report=write_run_report,
        sites=sites,
    )
