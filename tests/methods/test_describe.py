"""What there is to know of a method: its paper, its options, what leaves a site, and what trains it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedrel.errors import UserError
from fedrel.extractors.heads import HEADS
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.federation import secure_messages
from fedrel.federation.messages import Message
from fedrel.methods.by_name import FieldDescription, OptionDescription, _field_docs, describe, methods
from fedrel.methods.composition import reached
from fedrel.methods.summed_answers import SummedAnswers


def test_a_method_is_described():
    found = describe("lazy-mil")
    assert found.name == "lazy-mil"
    assert found.summary == (
        "The sites choose one sentence for each triple together, then FedAvg on the chosen sentences."
    )
    assert found.paper.startswith("Sui, Chen, Liu, Zhao 2021")
    options = ["weighting", "keyed_triples", "claims", "levels", "pooled_winners"]
    assert [option.name for option in found.options] == options
    assert found.options[0] == OptionDescription(
        name="weighting",
        type='"examples" | "uniform"',
        default='"examples"',
        about="How much an update counts in the average: by its number of examples, or all the same.",
    )
    assert (found.options[1].type, found.options[1].default) == ("bool", "false")
    assert [message.name for message in found.leaves_site] == ["Claims", "KeyedClaims", "Update"]
    assert found.leaves_site[0].about.startswith("Up: for each triple that a site's text mentions")
    assert found.leaves_site[1].fields == (
        FieldDescription(
            "digest",
            "uint8, claims by 32",
            "The triple's digest; between real sites, another one in every round.",
        ),
        FieldDescription(
            "value", "float32, claims", "p(r|s) of the triple's best sentence, or its rank at the site."
        ),
        FieldDescription(
            "index",
            "int32, claims",
            "That sentence's index at the site; of a real site, the claim's own place in this list.",
        ),
    )
    assert (found.simulation_only, found.trained_by) == (None, "kernels")


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("fedavg", ["Update"]),
        (
            "feded",
            ["Predictions", "BytePredictions"],
        ),  # no update, though FedAvg, which it is built on, sends one
        ("scaffold", ["ControlledUpdate"]),
        ("validation-only", []),
        ("lazy-mil+scaffold", ["Claims", "KeyedClaims", "ControlledUpdate"]),
    ],
)
def test_only_what_a_round_asks_for_leaves_a_site(name, kinds):
    assert [message.name for message in describe(name).leaves_site] == kinds


def test_fields_that_a_message_inherits_are_described_too():
    (update,) = describe("scaffold").leaves_site
    assert [field.name for field in update.fields] == ["weights", "examples", "loss", "path"]
    assert update.fields[0].type == "float32, the model's tensors, of tables only the changed rows"
    assert update.fields[2].type == "float64"
    assert all(field.about.endswith(".") for field in update.fields)


@pytest.mark.parametrize(
    ("name", "trained_by"),
    [
        ("one", "kernels"),
        ("feded", "kernels"),
        ("att", "kernels"),
        ("fedprox", "kernels"),
        ("fedadam", "kernels"),
        ("att-ra+fedcmc+scaffold", "kernels"),
        ("moon", "graph"),
    ],
)
def test_what_trains_a_site(name, trained_by):
    assert describe(name).trained_by == trained_by


def test_a_composed_method_has_its_parts_options_by_their_names():
    found = describe("fedprox+moon")
    assert [option.name for option in found.options] == [
        *("fedprox.weighting", "fedprox.mu", "moon.weighting", "moon.mu", "moon.tau")
    ]
    assert found.paper.count(";") == 1
    assert found.trained_by == "graph"


def test_pooled_data_is_for_simulation_only():
    assert describe("centralised+one").simulation_only == "it trains on all sites' text in one place"


def test_what_does_not_compose_cannot_be_described():
    with pytest.raises(UserError, match="cannot be composed"):
        describe("feded+lazy-mil")


OURS = [name for name, kind in methods().items() if kind.__module__.startswith("fedrel.")]


@pytest.mark.parametrize("name", OURS)
def test_every_method_can_be_described_in_full(name):
    found = describe(name)
    assert found.summary and found.paper
    assert all(option.about and option.type and option.default for option in found.options)
    assert all(message.about and message.fields for message in found.leaves_site)
    assert all(field.about for message in found.leaves_site for field in message.fields)


def test_the_messages_are_those_of_the_documentation():
    """The table under "What crosses the boundary" in docs/methods.md, with the methods that send each."""
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    table = page.partition("| message | way | fields | bytes | methods |")[2].partition("\n\n")[0]
    listed: dict[tuple[str, str], set[str]] = {}
    for row in table.splitlines()[2:]:
        name, way, _, _, senders = (cell.strip(" |") for cell in row.split(" | "))
        named = {one for one in re.findall("`([^`]+)`", senders) if one in OURS}
        listed[name.strip("`"), way] = set(OURS) - named if senders.startswith("all but") else named
    assert not listed.pop(("Earned", "down"))  # comes with the weights of any method, with `privacy.vouched`
    found: dict[tuple[str, str], set[str]] = {}
    for name in OURS:
        kind = methods()[name]
        functions = [getattr(kind, one) for one in reached(kind, leave_out=["collect_sum"])]
        asked = [function for function in functions if getattr(function, "leaves_site", False)]
        taken = {message for function in asked for message in function.takes}
        for message in taken | {*kind.carried()} - {*SummedAnswers.carries}:  # of secure sums: the next test
            found.setdefault((message.__name__, "down"), set()).add(name)
        for function in asked:
            found.setdefault((function.gives.__name__, "up"), set()).add(name)
    assert listed == found


def test_the_messages_of_secure_sums_are_those_of_their_page():
    page = (Path(__file__).parents[2] / "docs" / "secure-sums.md").read_text(encoding="utf-8")
    table = page.partition("| message | way | what it has |")[2].partition("\n\n")[0]
    listed = {row.split("`")[1] for row in table.splitlines()[2:]}
    assert listed == {
        name for name, kind in vars(secure_messages).items() if kind in Message.__subclasses__()
    }


def test_kernels_train_every_head(monkeypatch):
    monkeypatch.setattr(PCNN, "has_kernels", True)
    model = PCNN(9, 3, generator=torch.Generator())
    assert all(model.can_fit(head) for head in HEADS)


def test_a_description_cannot_be_changed():
    found = describe("scaffold")
    assert {found: 1}[describe("scaffold")] == 1  # hashable, with all that is in it
    parts = [found, *found.options, *found.leaves_site, *found.leaves_site[0].fields]
    assert not any(hasattr(part, "__dict__") for part in parts)


def test_a_message_whose_source_is_nowhere_has_no_field_docs():
    """As of a class that a notebook's cell, or `exec`, has made."""
    cell = {"__name__": "cell", "Message": Message}
    exec('class Made(Message):\n    numbers: int\n    """Some."""', cell)
    assert _field_docs(cell["Made"]) == {}
