"""The site's half under Flower: a ClientApp that asks the gate, sits down at a runner, and answers.

Flower sends the text of an exception to the coordinator. So none gets out of here: what goes wrong is written to
the site's own log, and the coordinator hears a number.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from fedrel.deployment.host import SiteHost
from fedrel.federation.flower.client import client_app
from fedrel.federation.flower.host import Host


def deployed(context: Context) -> Host:
    """The site whose folder the supernode was started with: `--node-config 'site="FOLDER"'`."""
    return SiteHost(Path(str(context.node_config["site"])))


app = client_app(deployed)
