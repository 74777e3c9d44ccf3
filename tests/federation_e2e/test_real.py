"""Flower's own programs on loopback, with TLS and known keys only: the same weights, and strangers kept out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fedrel.deployment.keys import new_authority, write_site_key
from fedrel.deployment.programs import Program, supernode
from tests.federation_e2e.bed import NAMES, Bed, same
from tests.federation_e2e.conftest import Local, copied, experiment
from tests.federation_e2e.dividing import prepared_for

PATIENCE = 900.0  # seconds for a run; a busy machine takes its time


@pytest.fixture
def federation(folders: Path, tmp_path: Path) -> Iterator[Bed]:
    """A federation's folders; whatever is started in them ends with the test."""
    bed = Bed(copied(folders, tmp_path / "federation"))
    bed.move_ports()
    try:
        yield bed
    finally:
        bed.end()


def by_flower(bed: Bed, local: Local, out: Path, method: str, rounds: int) -> None:
    """Run on the bed what the in-process engine has run, and compare."""
    config = experiment(method, training__rounds=rounds, engine__deadline=PATIENCE)
    for name in NAMES:
        prepared_for(config, bed.site(name).path)
    submitted = bed.submit(bed.request(config, out))
    assert submitted.wait(PATIENCE) == 0, bed.log("submit").read_text()
    same(local(config), out)


def test_lazy_mil_between_real_processes(federation: Bed, local: Local, out: Path):
    federation.start()
    by_flower(federation, local, out, "lazy-mil", rounds=1)


@pytest.mark.slow
def test_all_kinds_of_method_between_real_processes(federation: Bed, local: Local, tmp_path: Path):
    federation.start()
    for method in ("lazy-mil", "feded", "fedcmc", "scaffold"):
        by_flower(federation, local, tmp_path / method, method, rounds=3)


def without_key(command: Sequence[str]) -> list[str]:
    place = command.index("--auth-supernode-private-key")
    return [*command[:place], *command[place + 2 :]]


def with_another_key(site: Path) -> None:
    (site / "site.key").unlink()
    (site / "site.pub").unlink()
    write_site_key(site / "site.key", site / "site.pub", "a stranger")


def with_another_authority(site: Path) -> None:
    (site / "ca.crt").write_bytes(new_authority("somebody else").pem())


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        (with_another_key, list, "305"),
        (lambda site: None, without_key, "305"),
        (with_another_authority, list, "certificate"),
    ],
    ids=["unregistered key", "no key", "another authority"],
)
def test_strangers_are_turned_away(
    change: Callable[[Path], None], flags: Callable[[Sequence[str]], list[str]], said: str, federation: Bed
):
    federation.start(sites=[])
    change(federation.site("north").path)
    program = supernode(federation.site("north"))
    command = [*flags(program.command), "--max-retries", "1"]
    stranger = federation.run("north", Program(command, program.environment))
    assert stranger.wait(PATIENCE) != 0
    assert said in federation.log("north").read_text()
