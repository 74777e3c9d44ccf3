"""The options of every method: what they are without being given, and which values are taken."""

from __future__ import annotations

import pytest

from fedrel.errors import UserError
from fedrel.methods.by_name import method, methods

# By option: its default, values at the edge that are taken, and values beyond it that are refused.
NUMBERS = {
    "centralised.share": (1.0, [1e-9, 1], [0, 1.001]),
    "fedadam.adaptivity": (1e-3, [1e-9, 2], [0]),
    "fedadam.beta1": (0.9, [0, 0.999], [-1e-9, 1]),
    "fedadam.beta2": (0.99, [0, 0.999], [-1e-9, 1]),
    "fedadam.server_rate": (0.01, [1e-9, 2], [0]),
    "fedatt.step": (1.2, [1e-9, 2], [0]),
    "fedavgm.momentum": (0.9, [0, 0.999], [-1e-9, 1]),
    "fedavgm.server_rate": (1.0, [1e-9, 2], [0]),
    "fedcmc.mu": (1.0, [0, 2], [-1e-9]),
    "feddyn.alpha": (0.01, [1e-9, 2], [0]),
    "feded.temperature": (1.0, [1e-9, 2], [0]),
    "feded.levels": (0, [0, 16], [-1]),
    "fedlc.tau": (1.0, [0, 2], [-1e-9]),
    "fedlcc.mu": (0.1, [0, 2], [-1e-9]),
    "fedlcc.tau": (0.5, [1e-9, 2], [0]),
    "fedprox.mu": (0.01, [0, 2], [-1e-9]),
    "fedrs.alpha": (0.5, [0, 1], [-1e-9, 1.001]),
    "lazy-mil.levels": (0, [0, 16], [-1]),
    "lazy-one.levels": (0, [0, 16], [-1]),
    "moon.mu": (1.0, [0, 2], [-1e-9]),
    "moon.tau": (0.5, [1e-9, 2], [0]),
    "scaffold.global_rate": (1.0, [1e-9, 2], [0]),
}
WORDS = {
    "fedcmc.vectors": ["major", "minor", "random"],
    "feded.teacher": ["logits", "probs"],
    "feded.upload": ["float16", "uint8"],
    "lazy-mil.claims": ["probability", "rank", "random"],
    "lazy-one.claims": ["probability", "rank", "random"],
}
SWITCHES = [  # off without being given
    "lazy-mil.keyed_triples",
    "lazy-mil.pooled_winners",
    "lazy-one.keyed_triples",
]
NEVER = ["lazy-one.pooled_winners"]  # a part's option that it does not have
UNIFORM = {"scaffold", "feddyn", "fedlcc"}  # papers that count all sites the same


def made(option, value):
    name, key = option.split(".")
    return getattr(method(name, {name: {key: value}}), key)


@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_within_its_range_is_taken_and_others_are_refused(option):
    name, key = option.split(".")
    default, taken, refused = NUMBERS[option]
    assert getattr(method(name, {}), key) == default
    assert [made(option, value) for value in taken] == taken
    for value in refused:
        with pytest.raises(UserError, match=rf"methods\.{name}\.{key}: Input should be"):
            made(option, value)


@pytest.mark.parametrize("option", WORDS)
def test_one_of_some_words_is_taken_and_the_first_is_the_default(option):
    name, key = option.split(".")
    assert getattr(method(name, {}), key) == WORDS[option][0]
    assert [made(option, word) for word in WORDS[option]] == WORDS[option]
    with pytest.raises(UserError, match=rf"methods\.{name}\.{key}: Input should be"):
        made(option, "other")


@pytest.mark.parametrize("option", SWITCHES)
def test_a_switch_is_off_until_it_is_on(option):
    name, key = option.split(".")
    assert getattr(method(name, {}), key) is False
    assert made(option, True) is True


@pytest.mark.parametrize(
    "name", [name for name, kind in methods().items() if kind.__module__.startswith("fedrel.")]
)
def test_every_method_has_a_weighting_and_no_option_is_missing_here(name):
    chosen = method(name, {})
    assert chosen.weighting == ("uniform" if name in UNIFORM else "examples")
    assert made(f"{name}.weighting", "uniform") == "uniform"
    assert made(f"{name}.weighting", "examples") == "examples"
    listed = {option for option in (*NUMBERS, *WORDS, *SWITCHES, *NEVER) if option.startswith(f"{name}.")}
    assert {f"{name}.{key}" for key in type(chosen).model_fields} == {*listed, f"{name}.weighting"}
