"""Flower's own programs on loopback, with TLS and registered keys: the same weights as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")

from tests.federation_e2e.conftest import Local, experiment
from tests.federation_e2e.testbed import PATIENCE, Testbed, same

pytestmark = pytest.mark.programs


def by_flower(bed: Testbed, local: Local, out: Path, method: str, rounds: int) -> None:
    """Run on the bed what the in-process engine has run, and compare."""
    config = experiment(method, training__rounds=rounds, engine__deadline=PATIENCE)
    bed.finish(config, out)
    same(local(config), out)


def test_lazy_mil_between_real_processes(federation: Testbed, local: Local, out: Path):
    federation.start()
    by_flower(federation, local, out, "lazy-mil", rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lazy-mil", "feded", "fedcmc"])
def test_a_method_between_real_processes(method: str, federation: Testbed, local: Local, out: Path):
    """FedLCC, which reads documents, has a file of its own."""
    federation.start()
    by_flower(federation, local, out, method, rounds=2)
