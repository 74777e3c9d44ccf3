"""The site's half under Flower: a ClientApp that asks the gate, sits down at a desk, and answers.

Flower sends the text of an exception to the coordinator. So none gets out of here: what goes wrong is written to
the site's own log, and the coordinator hears a number.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from fedrel.deployment.host import Deployed
from fedrel.federation.flower.client import client_app
from fedrel.federation.flower.host import Place


def deployed(context: Context) -> Place:
    """The site whose folder the supernode was started with: `--node-config 'site="FOLDER"'`."""
    return Deployed(Path(str(context.node_config["site"])))


app = client_app(deployed)
