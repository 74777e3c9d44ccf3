"""A site that answers the coordinator until it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.policy import NAME, read_policy
from fedrel.deployment.programs import running, supernode, wait_until_free

STALE = 90.0  # seconds; Flower takes a node for connected until it has missed two heartbeats, 60 in all
PAUSE = 5.0  # seconds between two attempts


def answer(folder: SiteFolder, say: Callable[[str], None] = print) -> int:
    """Run Flower's supernode until it ends, and return its exit code.

    To a coordinator, a site that crashed stays connected for a minute, and who comes with its key in that time is
    turned away just like a stranger. So a site that has answered before tries again for that long.
    """
    until = time.monotonic() + STALE
    port = read_policy(folder.path).local_port
    while True:
        wait_until_free(port, f"is {folder.name} running already? If not, change local_port in {NAME}")
        with running(supernode(folder)) as process:
            code = process.wait()
        if not code or not folder.audit.exists() or time.monotonic() > until:
            return code
        say(
            f"turned away: perhaps {folder.name} still counts as connected; trying again in {PAUSE:g} seconds"
        )
        time.sleep(PAUSE)
