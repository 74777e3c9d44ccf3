"""How methods are composed: options, order, and what is refused, without any training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from fedrel.errors import UserError
from fedrel.federation.messages import Update
from fedrel.federation.method import Method
from fedrel.methods.by_name import method, methods, parts
from fedrel.methods.composition import composed, method_of, owner, reached
from fedrel.methods.fedavg import FedAvg


def test_every_method_is_found_by_name():
    assert set(methods()) >= {"fedavg", "none", "one", "ave", "att", "att-ra", "lazy-mil", "centralised"}


def test_composed_methods_keep_both_parts():
    options = {"lazy-mil": {"keyed_triples": True}, "fedprox": {"weighting": "uniform", "mu": 0.5}}
    both = method("lazy-mil+fedprox", options)
    assert (both.keyed_triples, both.mu, both.weighting) == (True, 0.5, "uniform")
    assert (both.train_head, both.test_head) == ("none", "one")
    assert {"Winners", "PooledWinners"} <= {kind.__name__ for kind in both.carried()}
    assert method("centralised+att", {}).train_head == "att"


def test_a_part_that_another_is_built_on_adds_nothing():
    assert type(method("fedavg+one", {})) is type(method("one+one", {})) is methods()["one"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lazymil", {}, "did you mean 'lazy-mil'"),
        ("one", {"onee": {}}, "no method is called 'onee'"),
        ("one", {"one": {"weight": 1}}, "did you mean 'weighting'"),
        ("one", {"one": {"weighting": "size"}}, r"methods\.one\.weighting"),
    ],
)
def test_a_wrong_name_or_option_is_named(name, options, message):
    with pytest.raises(UserError, match=message):
        method(name, options)


# Options.


def test_two_methods_may_each_have_an_option_of_the_same_name():
    options = {"fedprox": {"mu": 0.25}, "moon": {"mu": 3, "tau": 0.1}, "fedlc": {"tau": 2}}
    for name in ("fedprox+moon+fedlc", "fedlc+moon+fedprox"):
        made = method(name, options)
        fedprox, moon, fedlc = (made.part(methods()[part]) for part in ("fedprox", "moon", "fedlc"))
        assert (fedprox.mu, moon.mu, moon.tau, fedlc.tau) == (0.25, 3, 0.1, 2)
        with pytest.raises(AttributeError):
            _ = made.mu  # of which part?
    alone = method("moon", options)
    assert alone.part(methods()["moon"]) is alone
    assert alone.mu == 3


@pytest.mark.parametrize(
    "pair",
    [
        *("fedprox+moon", "fedcmc+fedprox", "fedlcc+fedprox", "fedcmc+moon", "fedlcc+moon", "fedcmc+fedlcc"),
        *("fedlc+moon", "fedlc+fedlcc", "feddyn+fedrs", "fedadam+fedavgm"),
    ],
)
def test_the_pairs_that_share_a_name_of_an_option_can_be_composed(pair):
    """Of those with FedLCC, which is for documents, a run then says so (`test_pairs`)."""
    made = method(pair, {})
    for kind in parts(pair):
        defaults = {option: field.default for option, field in kind.model_fields.items()}
        del defaults["weighting"]  # that one they share
        assert defaults.items() <= vars(made.part(kind)).items()


def weighting(name, **options):
    return method(name, {part: {"weighting": value} for part, value in options.items()}).weighting


def test_parts_share_the_weighting():
    """What is given counts, else what a part has for a default of its own, else FedAvg's default."""
    assert weighting("one+fedprox") == "examples"
    for name in ("scaffold", "feddyn", "fedlcc"):
        assert weighting(name) == weighting(f"fedprox+{name}") == weighting(f"{name}+fedprox") == "uniform"
        assert weighting(f"fedprox+{name}", fedprox="examples") == "examples"
    assert weighting("fedlcc+fedavgm") == weighting("fedavgm+fedlcc") == "uniform"
    assert weighting("fedavg+one", fedavg="uniform") == "uniform"
    assert weighting("one+fedprox", one="uniform", fedprox="uniform") == "uniform"
    counted = method("scaffold+one", {"one": {"weighting": "examples"}})
    assert counted.update_weight(Update({}, 7, 0.0)) == 7
    assert method("scaffold+one", {}).update_weight(Update({}, 7, 0.0)) == 1


@pytest.mark.parametrize("name", ["fedavgm+fedlcc", "fedlcc+fedavgm"])
def test_a_weighting_that_is_given_twice_must_be_the_same(name):
    options = {"fedlcc": {"weighting": "uniform"}, "fedavgm": {"weighting": "examples"}}
    with pytest.raises(
        UserError, match=r"weighting is '\w+', but methods\.fed\w+\.weighting is '\w+'"
    ) as refusal:
        method(name, options)
    assert "composed methods share `weighting`: give it once" in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"moon": {"mu": -1}}, r"methods\.moon\.mu: Input should be greater than or equal to 0"),
        ({"fedprox": {"tau": 1}}, r"unknown option 'methods\.fedprox\.tau'"),
    ],
)
def test_a_wrong_option_of_a_part_is_named(options, message):
    with pytest.raises(UserError, match=message):
        method("fedprox+moon", options)


# Which classes go together, and in which order.


class Terminal(FedAvg):
    """Replaces what it changes. Classes whose name has a `+` are not listed among the methods."""

    name: ClassVar[str] = "a-terminal+"

    def examples(self, site):
        return "terminal"

    def loss(self, site, batch, reading):
        return ["terminal"]


class Chained(FedAvg):
    """Adds to what it changes."""

    name: ClassVar[str] = "chained+"
    word: str = "chained"

    def examples(self, site):
        return f"{self.word} {super().examples(site)}"

    def loss(self, site, batch, reading):
        return [*super().loss(site, batch, reading), self.word]


class AlsoChained(FedAvg):
    name: ClassVar[str] = "also-chained+"
    word: str = "too"

    def loss(self, site, batch, reading):
        return [*super().loss(site, batch, reading), self.word]


class Crossed(FedAvg):
    """Must come before `Terminal` for one function and after it for another."""

    name: ClassVar[str] = "crossed+"

    def examples(self, site):
        return f"crossed {super().examples(site)}"

    def helper(self):
        return "crossed"


class WithHelper(Terminal):
    name: ClassVar[str] = "with-helper+"

    def helper(self):
        return super().helper()


class OwnRound(Method):
    """Not built on FedAvg."""

    name: ClassVar[str] = "own-round+"

    def round(self, fed):
        fed.weights = {}


def test_what_calls_super_comes_before_what_does_not():
    for names in ([Terminal, Chained, AlsoChained], [AlsoChained, Chained, Terminal]):
        made = method_of(names, {"chained+": {"word": "first"}})
        assert made.examples(None) == "first terminal"
        assert made.loss(None, None, None) == ["terminal", "first", "too"]
    assert composed([Terminal, AlsoChained, Chained]).__mro__[1:4] == (AlsoChained, Chained, Terminal)


def test_two_that_both_extend_a_function_whose_changes_do_not_add_up_are_refused():
    with pytest.raises(UserError, match="both change `examples`, and the result would depend on their order"):
        composed([Chained, Crossed])


def test_of_two_that_both_replace_several_functions_the_round_is_named_first():
    class One(FedAvg):
        name = "one-of-two+"

        def round(self, fed):
            """Something."""

        def examples(self, site):
            return site.bags

    class Two(FedAvg):
        name = "two-of-two+"
        round, examples = One.round, One.examples

    with pytest.raises(UserError, match="both define `round`, and one of the two would be ignored"):
        composed([One, Two])


def test_two_that_both_replace_a_function_are_refused():
    with pytest.raises(
        UserError, match="both define `round`, and one of the two would be ignored"
    ) as refusal:
        composed([OwnRound, Terminal])
    assert str(refusal.value).startswith("a-terminal+ and own-round+ cannot be composed")
    assert str(refusal.value).endswith("hint: choose one of them")


def test_parts_that_must_each_come_before_the_other_are_refused():
    with pytest.raises(UserError, match="in every order, one of them would ignore another"):
        composed([Crossed, WithHelper])


def test_a_part_in_a_composition_of_three_is_checked_with_each_of_the_others():
    with pytest.raises(
        UserError, match="fedadam and scaffold cannot be composed: both change `server_update`"
    ):
        method("fedavgm+fedadam+scaffold", {})
    with pytest.raises(UserError, match="fedprox, none and one cannot be composed: none trains as fedavg"):
        method("none+one+fedprox", {})


def test_names_that_a_round_may_use_are_read_off_its_code():
    used = {name: reached(kind) for name, kind in methods().items()}
    assert {"train_and_average", "aggregator", "loss", "calibration", "correction"} <= used["lazy-mil"]
    assert {"predict_bytes", "distil", "before_training", "server_update", "loss"} <= used["feded"]
    assert not {"aggregator", "on_update", "train"} & used["feded"]
    assert "train" not in used["validation-only"]
    assert reached(Terminal, "examples") == {"examples"}


def test_both_steps_of_the_coordinator_are_taken():
    fed = SimpleNamespace(state={}, weights={"w": np.ones(1, np.float32)})
    options = {
        "fedavgm": {"server_rate": 0.5},
        "fedadam": {"server_rate": 0.1, "beta2": 0.0, "adaptivity": 1.0},
    }
    made = method("fedavgm+fedadam", options)
    after = made.server_update(fed, {"w": np.full(1, 3, np.float32)})  # d = 2, m = 0.2, v = 4
    assert after["w"].tolist() == pytest.approx([1 + 0.5 * 2 + 0.1 * 0.2 / (2 + 1)])
    assert set(fed.state) == {"fedavgm.w", "fedadam.m.w", "fedadam.v.w"}


def test_these_functions_add_up_and_others_do_not():
    """As docs/adding-a-method.md says."""
    kinds = {kind for one in methods().values() for kind in one.__mro__ if issubclass(kind, Method)}
    found = {name for kind in kinds for name, value in vars(kind).items() if getattr(value, "adds_up", False)}
    coordinator = {
        "before_training",
        "on_update",
        "after_training",
        "check",
        "simulation_only",
        "server_step",
        "reach",
    }
    assert found == coordinator | {"fit", "loss", "correction"}


def test_an_option_belongs_to_the_class_that_declares_it_first():
    assert owner(methods()["moon"], "mu") is methods()["moon"]
    assert owner(methods()["fedlcc"], "weighting") is owner(methods()["one"], "weighting") is FedAvg


def test_what_a_part_changes_and_the_other_never_uses_is_refused():
    with pytest.raises(UserError, match="feded does not use `aggregator`, which fedatt changes"):
        method("fedatt+feded", {})


class Rated(FedAvg):
    rate: float = 1.0


class Careful(Rated):
    name: ClassVar[str] = "careful+"
    rate: float = 0.5

    def before_training(self, *given: object) -> None:
        pass


class Tuned(Rated):
    name: ClassVar[str] = "tuned+"

    def update_weight(self, *given: object) -> float:
        return 1.0


def test_a_default_of_a_part_counts_where_the_other_has_the_common_one():
    assert method_of([Careful, Tuned], {}).rate == method_of([Tuned, Careful], {}).rate == 0.5
