"""The federation's page against three real site processes: who is connected, what was refused, what left."""

from __future__ import annotations

import pytest

from tests.browser.conftest import until

pytest.importorskip("flwr", reason="needs the extra `flower`")

from tests.federation_e2e.conftest import experiment, federation, folders  # noqa: F401
from tests.federation_e2e.testbed import PATIENCE, Testbed

pytestmark = pytest.mark.programs

SITE = "document.body.innerText"


@pytest.mark.slow
def test_the_pages_of_a_federation(federation: Testbed, studio, open_page, real_python):  # noqa: F811
    """One of the three sites lets nothing leave but what it holds."""
    federation.write_policy("west", may_leave=["Holdings"])
    federation.start()
    at_coordinator = open_page(f"{studio(federation.coordinator.path).url}/federation")
    at_coordinator.get_by_text("No run yet").wait_for()
    until(at_coordinator, f"{SITE}.includes('3 of 3 sites are connected')", PATIENCE)
    at_site = open_page(f"{studio(federation.site('north').path).url}/federation")
    at_site.get_by_text("Nothing has left yet").wait_for()
    config = experiment("fedavg", training__rounds=2, engine__deadline=PATIENCE)
    out = federation.coordinator.runs / "first"
    federation.finish(config, out)
    # Both pages were open all the time, and nobody loaded them again.
    until(at_coordinator, f"{SITE}.includes('Run first is in round 2 of 2')")
    row = at_coordinator.get_by_role("row", name="2 west Update")
    assert "does not allow" in row.inner_text() or "policy" in row.inner_text()
    until(at_site, f"{SITE}.includes('every line fits')")
    until(at_site, f"/\\d answers left this site/.test({SITE})")
    assert at_site.get_by_role("row", name="Update 2").count() == 1  # by kind: two rounds
    text = at_coordinator.inner_text("body")
    assert "allow.may_leave" not in text, "what a site notes for itself is not shown here"
    at_coordinator.get_by_role("link", name="first").click()
    at_coordinator.get_by_text("On the test set fedavg reaches").wait_for()
