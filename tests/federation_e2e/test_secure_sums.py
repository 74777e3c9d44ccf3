"""Secure sums between real sites' folders: the same weights as in a simulation, and what each site refuses."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")
pytest.importorskip("Crypto", reason="needs the extra `privacy`")

from flwr.app import RecordDict

from fedrel.config.schema import Config
from fedrel.deployment.audit import check
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.membership import add_site
from fedrel.deployment.sum_keys import CoordinatorKeys, SiteSecrets, check_peer_keys, remove_secrets
from fedrel.errors import UserError
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.flower import codec
from fedrel.federation.wire import decode
from fedrel.privacy.secret_keys import TamperedError
from fedrel.runs.prepare import Preparation, prepare
from tests.federation_e2e.conftest import Called, copied
from tests.federation_e2e.grid import Behaviour, gone, in_round, silent
from tests.federation_e2e.summing import (
    FOUR,
    STEPS,
    Absent,
    Dropping,
    new_site_runner,
    same_weights,
    seen,
    simulated,
    single_answers,
    summed,
    weights_of,
)
from tests.federation_e2e.testbed import Testbed, rounds

QUICK = {"engine__deadline": 0.5}
PHASES = [phase for phase, _ in STEPS.values()]
RUN = f"{'0' * 32}-00000000"
Answer = Callable[[RecordDict], RecordDict]


def some_fast(values: Iterable[str], *fast: str) -> list[Any]:
    """All of these for `make test-all`, and some of them for `make test` too."""
    return [one if one in fast else pytest.param(one, marks=pytest.mark.slow) for one in values]


@pytest.fixture(scope="module")
def ready() -> Preparation:
    return prepare(summed())


@pytest.fixture(scope="module")
def of_four(ready: Preparation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Testbed(tmp_path_factory.mktemp("folders") / "federation", names=FOUR)
    made.make(summed(), ready)
    return made.folder


@pytest.fixture
def four(of_four: Path, tmp_path: Path) -> Called:
    return Called(copied(of_four, tmp_path / "federation"), FOUR)


def changed(change: Callable[[dict[str, Any]], None]) -> Behaviour:
    """A coordinator that changes what it tells a site."""

    def behave(content: RecordDict, answer: Answer) -> RecordDict:
        arrays = dict(decode(bytes(content["own"]["body"].data)))
        change(arrays)
        content["own"] = codec.encode_arrays(arrays)
        return answer(content)

    return behave


def notes(called: Called, name: str) -> str:
    """What a site's record says about its refusals."""
    return "\n".join(line.entry.note for line in check(called.bed.site(name).audit).lines if line.entry.note)


@pytest.mark.parametrize("method", some_fast(["fedavg", "lazy-mil", "scaffold", "feded"], "lazy-mil"))
def test_weights_are_those_of_a_simulation(method: str, four: Called, ready: Preparation, tmp_path: Path):
    config = summed(method, **QUICK)
    four.run(config, tmp_path / "run")
    local = simulated(config, ready, LocalEngine(new_site_runner(config, ready, tmp_path / "local")))
    same_weights(weights_of(tmp_path / "run", config), local)
    assert not any(line["refused"] for line in rounds(tmp_path / "run"))


@pytest.mark.parametrize("step", some_fast(STEPS, "masked"))
def test_a_site_that_drops_out_is_left_out_or_not_missed(
    step: str, four: Called, ready: Preparation, tmp_path: Path
):
    """Equal to the bit to the simulation, and within the quantisation to the plain mean of the survivors."""
    phase, message = STEPS[step]
    config = summed(**QUICK)
    four.grid.behaviour[2] = in_round(2, silent, phase)
    four.run(config, tmp_path / "run")
    (refused,) = rounds(tmp_path / "run")[1]["refused"]
    assert (refused["site"], refused["message"]) == (2, message)
    found = weights_of(tmp_path / "run", config)
    runner = new_site_runner(config, ready, tmp_path / "secure")
    same_weights(found, simulated(config, ready, Dropping(runner, [None, phase])))
    plain = summed(secure=False)
    counted = phase in ("sign_lists", "unmask")
    absent = Absent(new_site_runner(plain, ready, tmp_path / "plain"), [] if counted else [2])
    same_weights(found, simulated(plain, ready, absent), atol=1e-6)


def carried(called: Called) -> dict[str, bytes]:
    """All messages, by number."""
    bodies = (
        [record["body"] for record in content.array_records.values() if "body" in record]
        for content in called.grid.carried
    )
    return {str(number): b"".join(bytes(one.data) for one in found) for number, found in enumerate(bodies)}


def trained_tables(config: Config, ready: Preparation, folder: Path) -> list[bytes]:
    """Each site's weights after training, as it would send them."""
    found: list[bytes] = []

    class Listening(LocalEngine):
        def ask(self, phase: str, *given: Any) -> Any:
            for site, answer in super().ask(phase, *given):
                if phase == "train":
                    found.extend(array.tobytes() for array in answer.arrays.values() if array.size > 100)
                yield site, answer

    simulated(config, ready, Listening(new_site_runner(config, ready, folder)))
    return found


def test_no_message_has_a_sites_update(
    four: Called, of_four: Path, ready: Preparation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without secure sums, the same search finds what each site sends."""
    config = summed(training__rounds=1, **QUICK)
    engine = LocalEngine(new_site_runner(config, ready, tmp_path / "local"))
    secrets = single_answers(config, ready, engine, monkeypatch)
    assert len(secrets) == 2 * len(FOUR)
    four.run(config, tmp_path / "run")
    assert not seen(carried(four), secrets)
    files = {str(file): file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert not seen(files, secrets)
    open_ = Called(copied(of_four, tmp_path / "open"), FOUR)
    plain = summed(secure=False, training__rounds=1, **QUICK)
    trained = trained_tables(plain, ready, tmp_path / "plain")
    open_.run(plain, tmp_path / "run-plain")
    assert len(seen(carried(open_), trained)) == len(FOUR)
    assert not seen(carried(four), trained)


# Secrets.


def test_secrets_of_a_session_are_the_sites_alone_and_end_with_the_round(four: Called, tmp_path: Path):
    four.run(summed(**QUICK), tmp_path / "run")
    for name in FOUR:
        (key,) = (four.bed.site(name).path / "state").glob("*/sums/*.key")
        assert key.name.startswith("00002-") and len(key.read_bytes()) == 32
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_session_has_one_secret_and_another_run_has_another(four: Called):
    folder = four.bed.site("north").path
    one, other = SiteSecrets(folder, RUN), SiteSecrets(folder, f"{'1' * 32}-00000000")
    assert one.of_session(0, 1, b"session", new=False) is None
    first = one.of_session(0, 1, b"session", new=True)
    assert first == one.of_session(0, 1, b"session", new=True) == one.of_session(0, 1, b"session", new=False)
    assert (
        len({first, other.of_session(0, 1, b"session", new=True), one.of_session(0, 1, b"two", new=True)})
        == 3
    )
    one.of_session(0, 2, b"session", new=True)
    assert one.of_session(0, 1, b"session", new=False) is None
    assert len(list((folder / "state").glob("*/sums/*.key"))) == 2
    remove_secrets(SiteFolder(folder), but_of=RUN)  # as when the run begins
    assert other.of_session(0, 1, b"session", new=False) is None
    (file,) = (folder / "state" / RUN / "sums").iterdir()
    file.write_bytes(b"cut short")
    assert one.of_session(0, 2, b"session", new=False) is None
    assert len(one.of_session(0, 2, b"session", new=True) or b"") == 32


def test_sites_sign_with_their_registered_keys(four: Called):
    at_site = {name: SiteSecrets(four.bed.site(name).path, RUN) for name in FOUR}
    coordinator = CoordinatorKeys(four.bed.coordinator.path, RUN)
    signed = at_site["west"].sign(2, b"text")
    for knows in (*at_site.values(), coordinator):
        knows.check(2, signed, b"text")
        for site, signature, text in ((1, signed, b"text"), (2, signed, b"other"), (2, signed[:-1], b"text")):
            with pytest.raises(TamperedError, match="not signed with its registered key"):
                knows.check(site, signature, text)
        with pytest.raises(TamperedError, match="its public key is not in this folder"):
            knows.check(7, signed, b"text")


def test_a_new_site_has_the_others_keys_and_those_beside_it_have_its(four: Called):
    folder = four.bed.folder
    add_site(folder / "authority", four.bed.coordinator, "centre", folder / "sites" / "centre")
    centre = SiteFolder(folder / "sites" / "centre")
    check_peer_keys(centre)
    for name in FOUR:
        assert four.bed.site(name).peer_key(4).read_bytes() == (centre.path / "site.pub").read_bytes()
    centre.peer_key(1).unlink()
    with pytest.raises(UserError, match="secure sums need the public key of south") as refused:
        check_peer_keys(centre)
    assert "1-south.pub" in str(refused.value.hint)


# A coordinator that lies, and sites that do.


def refusals(out: Path) -> dict[int, str]:
    return {one["site"]: one["reason"] for one in rounds(out)[-1]["refused"]}


def test_different_lists_for_different_sites_uncover_nothing(four: Called, tmp_path: Path):
    """The coordinator tells two sites that a third dropped out, and the others that it did not."""

    def without_east(arrays: dict[str, Any]) -> None:
        if "Survivors.answered" in arrays:
            arrays["Survivors.answered"] = arrays["Survivors.answered"][:3]

    for site in (0, 1):
        four.grid.behaviour[site] = changed(without_east)
    with pytest.raises(UserError, match="2 sites signed the lists of who takes part, and 3 are needed"):
        four.run(
            summed(**QUICK), tmp_path / "run"
        )  # it drops the two whose signatures do not fit its own list


def test_a_list_that_a_site_alone_was_told(four: Called, tmp_path: Path):
    """It gets the other lists' signatures, and names a site that signed another list."""

    def without_east(arrays: dict[str, Any]) -> None:
        arrays["Survivors.answered"] = arrays["Survivors.answered"][:3]

    four.grid.behaviour[0] = in_round(1, changed(without_east), "unmask")
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert refusals(tmp_path / "run")[0].startswith("refused the request: it does not fit")
    assert "other sites than in the lists that this site has signed" in notes(four, "north")


def test_forged_keys_are_refused_and_their_owner_is_named(four: Called, tmp_path: Path):
    """Keys of the coordinator's own making in the place of a site's: it could read all shares for that site."""

    def of_its_own(arrays: dict[str, Any]) -> None:
        arrays["Peers.keys"] = arrays["Peers.keys"].copy()
        arrays["Peers.keys"][3] = arrays["Peers.keys"][2]

    four.grid.behaviour[0] = in_round(1, changed(of_its_own), "give_shares")
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert "what it was told of site number 3 is not what that site signed" in refusals(tmp_path / "run")[0]
    assert "the keys of site 3 are not its own: not signed with its registered key" in notes(four, "north")


def test_a_site_with_another_key_is_dropped_and_named(four: Called, tmp_path: Path):
    four.bed.coordinator.public_key("north").write_bytes(
        four.bed.coordinator.public_key("south").read_bytes()
    )
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    (refused,) = rounds(tmp_path / "run")[0]["refused"]
    assert (refused["site"], refused["message"]) == (0, "PublicKeys")
    assert refused["reason"] == "the signature does not fit: not signed with its registered key"


def test_a_site_whose_key_another_lacks_is_named(four: Called, tmp_path: Path):
    four.bed.site("north").peer_key(3).unlink()
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert "site number 3" in refusals(tmp_path / "run")[0]
    assert "the keys of site 3 are not its own: its public key is not in this folder" in notes(four, "north")


@pytest.mark.parametrize("phase", some_fast(PHASES[1:], "give_shares"))
def test_a_replayed_session_is_refused(phase: str, four: Called, tmp_path: Path):
    """A request of round 1 again in round 2: the site has no such session in that round."""
    kept: list[RecordDict] = []

    def replay(content: RecordDict, answer: Answer) -> RecordDict:
        if content["question"]["phase"] == phase:
            if content["question"]["round"] == 1:
                kept.append(content["own"])
            else:
                content["own"] = kept[0]
        return answer(content)

    four.grid.behaviour[1] = replay
    four.run(summed(**QUICK), tmp_path / "run")
    assert refusals(tmp_path / "run").keys() == {1}
    assert "session for which this site has given no keys" in notes(four, "south")


# What a site demands.


def test_a_site_that_demands_secure_sums_refuses_others_by_name(four: Called, tmp_path: Path):
    four.bed.privacy["require_secure_sum"] = True
    four.bed.write_policy("south")
    with pytest.raises(UserError, match=r"site-1 refused the request: its site\.toml demands secure sums"):
        four.run(summed(secure=False, **QUICK), tmp_path / "plain")
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")


def test_a_cohort_below_a_sites_own_minimum_is_refused_with_the_number(four: Called, tmp_path: Path):
    four.bed.privacy["min_cohort"] = 4
    four.bed.write_policy("south")
    four.grid.behaviour[2] = in_round(1, silent, "give_keys")
    with pytest.raises(UserError, match="a secure sum with it must be over at least 4 sites"):
        four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert "a cohort of 3 sites, and at least 4 are demanded" in notes(four, "south")


def test_a_tensor_that_must_stay_is_not_summed_either(four: Called, tmp_path: Path):
    four.bed.write_policy("south", must_stay=["Update.weights/filters"])
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert "does not let a field of the message leave" in refusals(tmp_path / "run")[1]
    assert "Update.weights/filters, which the sum would have" in notes(four, "south")


def test_an_answer_by_itself_is_refused(four: Called, tmp_path: Path):
    def alone(content: RecordDict, answer: Answer) -> RecordDict:
        content["question"]["phase"] = "train"
        return answer(content)

    four.grid.behaviour[0] = in_round(1, alone, "answer_masked")
    four.run(summed(training__rounds=1, **QUICK), tmp_path / "run")
    assert 0 in refusals(tmp_path / "run")
    assert "takes no Session" in notes(four, "north") or "by itself" in notes(four, "north")


def test_too_few_examples_are_refused_under_masks_too(four: Called, tmp_path: Path):
    with_few = min(range(4), key=lambda number: four.bed.site(FOUR[number]).sentences)
    held = four.bed.site(FOUR[with_few]).sentences
    config = summed("lazy-mil", training__rounds=1, **QUICK)
    four.bed.write_policy(FOUR[with_few], examples=held)  # fewer than it holds win
    four.run(config, tmp_path / "run")
    assert with_few in refusals(tmp_path / "run")
    assert "fewer than allow.examples" in notes(four, FOUR[with_few])


# Crashes.


class CrashError(Exception):
    """The coordinator's machine failed."""


@pytest.mark.parametrize("phase", some_fast(PHASES, "unmask"))
def test_a_coordinator_that_crashed_in_a_step_goes_on(
    phase: str, four: Called, ready: Preparation, tmp_path: Path
):
    """Two sites have answered the step. The same requests get the same answers, and the round its sum."""
    config = summed(**QUICK)

    def crash(content: RecordDict, answer: Answer) -> RecordDict:
        raise CrashError

    four.grid.behaviour[2] = in_round(2, crash, phase)
    with pytest.raises(CrashError):
        four.run(config, tmp_path / "run")
    four.grid.behaviour = {}
    four.run(config, tmp_path / "run", resume=True)
    assert not any(line["refused"] for line in rounds(tmp_path / "run"))
    local = simulated(config, ready, LocalEngine(new_site_runner(config, ready, tmp_path / "local")))
    same_weights(weights_of(tmp_path / "run", config), local)


def test_after_some_have_unmasked_no_other_sum_of_the_round_is_uncovered(four: Called, tmp_path: Path):
    """It ends the round with the reason; once the missing site is back, the same sum is uncovered."""
    config = summed(training__rounds=1, **QUICK)

    def crash(content: RecordDict, answer: Answer) -> RecordDict:
        raise CrashError

    four.grid.behaviour[2] = in_round(1, crash, "unmask")
    with pytest.raises(CrashError):
        four.run(config, tmp_path / "run")
    four.grid.behaviour[2] = in_round(1, gone)
    with pytest.raises(
        UserError, match=r"round 1: .* helped to unmask the sum, and \d are needed; nothing was"
    ):
        four.run(config, tmp_path / "run", resume=True)
    assert "another request for its sum was answered in this round" in notes(four, "north")
    four.grid.behaviour = {}
    four.run(config, tmp_path / "run", resume=True)
    assert len(rounds(tmp_path / "run")) == 1


def test_a_new_run_of_the_same_experiment_may_sum_the_same_again_and_nothing_else(
    four: Called, tmp_path: Path
):
    config = summed(training__rounds=1, **QUICK)
    four.run(config, tmp_path / "one")
    four.run(config, tmp_path / "two")
    same_weights(weights_of(tmp_path / "one", config), weights_of(tmp_path / "two", config))
    four.grid.behaviour[2] = in_round(1, silent, "give_keys")
    with pytest.raises(UserError, match="round 1: "):
        four.run(config, tmp_path / "three")  # their difference would be the update of one site
    assert "another request for its sum was answered in this round" in notes(four, "north")


def test_a_site_that_lost_its_last_answers_gives_the_same_sum(four: Called, tmp_path: Path):
    """Signatures and shares are made anew then; masks are not."""
    config = summed(training__rounds=1, **QUICK)

    def crash(content: RecordDict, answer: Answer) -> RecordDict:
        raise CrashError

    four.grid.behaviour[3] = in_round(1, crash, "unmask")
    with pytest.raises(CrashError):
        four.run(config, tmp_path / "run")
    for file in (four.bed.site("north").path / "state").glob("*/answers/*"):
        file.unlink()
    four.grid.behaviour = {}
    four.run(config, tmp_path / "run", resume=True)
    assert not rounds(tmp_path / "run")[0]["refused"]
