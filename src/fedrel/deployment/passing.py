"""The ClientApp of a real site: it passes a message to the site's runner, and the runner's answer back.

Flower starts a process for every message. This one decides nothing and computes nothing: the runner asks the
site's rules, computes, records, and only then answers (`site_runner`). If the runner is killed before it has
answered, it is asked again as soon as it is back.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedrel.deployment.site_socket import OtherUserError, connected, receive, send
from fedrel.federation.flower.record_bytes import from_bytes, to_bytes

ATTEMPTS = 3  # a request that ends the runner so often is given up
PATIENCE = 180.0  # seconds for a runner to listen: torch takes long to import on a busy machine
PAUSE = 0.1  # seconds between two attempts to connect

_log = logging.getLogger(__name__)

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Any request."""
    folder = Path(str(context.node_config["site"]))
    return Message(pass_on(folder, message.content), reply_to=message)


def pass_on(folder: Path, content: RecordDict) -> RecordDict:
    """What the runner of the site in this folder answers."""
    request, asked = to_bytes(content), 0
    until = time.monotonic() + PATIENCE
    while asked < ATTEMPTS and time.monotonic() < until:
        try:
            with connected(folder) as connection:
                asked += 1
                send(connection, request)
                return from_bytes(receive(connection))
        except OtherUserError as error:
            _log.error("%s", error)
            break
        except OSError:  # it is about to start, or was killed
            until = max(until, time.monotonic() + PATIENCE) if asked else until
            time.sleep(PAUSE)
    return _no_answer(folder)


def _no_answer(folder: Path) -> RecordDict:
    """The refusal of a site whose runner does not answer; it is recorded like every other."""
    from fedrel.deployment.folders import SiteFolder
    from fedrel.deployment.site_gate import SiteGate
    from fedrel.federation.flower.codec import encode_refusal
    from fedrel.federation.flower.host import Refusal, RefusalCode

    refusal = Refusal(RefusalCode.FAILED)
    try:
        SiteGate(SiteFolder(folder)).refuse(None, refusal, "the site's runner does not answer")
    except Exception:  # the site's folder, its site.toml or its audit record is damaged
        _log.exception("cannot answer, nor record that")
    return encode_refusal(refusal)
