"""Every pair of methods trains as neither part alone does, in both orders alike, or is refused with the reason."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.methods.by_name import method, methods, parts
from fedrel.methods.composition import composed
from fedrel.runs.prepare import Preparation, prepare
from tests.conftest import local_session, tiny
from tests.documents import tiny_documents
from tests.extractors.conftest import write_encoder
from tests.methods.slow_rounds import small, with_sites

NAMES = sorted(name for name, kind in methods().items() if kind.__module__.startswith("fedrel.methods."))
PAIRS = [f"{one}+{other}" for one, other in combinations(NAMES, 2)]

# Where one part is built on the other, the composition is that other one.
IDENTITIES = {f"{min('fedavg', name)}+{max('fedavg', name)}": name for name in NAMES if name != "fedavg"}
IDENTITIES["lazy-mil+lazy-one"] = "lazy-one"

HEADS = {"one", "ave", "att", "att-ra"}
LAZY = ("lazy-mil", "lazy-one")
TWO_HEADS = r"both define `(train|test)_head`, and one of the two would be ignored"
TWO_STEPS = "both change `server_update`, and the result would depend on their order"
UNUSED = "does not use `(after_training|aggregator|server_update)`, which .* changes"
NOTHING = "none trains as fedavg does, and adds nothing to"
ONE_PLACE = "with one place to train, the global model is its own previous one"
SENTENCES = "sentences, but the data are documents"
BAGS = "chooses among the sentences of a bag, but the data are documents"

REFUSED = {
    **{f"{one}+{other}": TWO_HEADS for one, other in combinations(sorted(HEADS), 2)},
    **{f"{head}+feded": TWO_HEADS for head in HEADS - {"one"}},
    **{f"{head}+{lazy}": TWO_HEADS for head in HEADS - {"one"} for lazy in LAZY},
    "feded+one": TWO_HEADS,
    **{f"{lazy}+one": TWO_HEADS for lazy in LAZY},
    **{f"{head}+moon": "moon compares the vectors of single sentences" for head in HEADS - {"one"}},
    **{
        f"{min('none', name)}+{max('none', name)}": NOTHING
        for name in NAMES
        if name not in ("none", "fedavg")
    },
    **dict.fromkeys(("fedadam+feddyn", "fedadam+scaffold", "fedavgm+feddyn"), TWO_STEPS),
    **dict.fromkeys(("fedavgm+scaffold", "feddyn+scaffold"), TWO_STEPS),
    "feded+scaffold": "both define `summ(and|ed)`, and one of the two would be ignored",
    "fedlc+fedrs": "both define `calibration`, and one of the two would be ignored",
    "fedatt+scaffold": "scaffold corrects the mean of the updates, and another part replaces that mean",
    **dict.fromkeys(("fedatt+feded", "fedcmc+feded", "feddyn+feded"), UNUSED),
    **{f"{name}+validation-only": UNUSED for name in ("fedatt", "fedcmc", "feddyn", "scaffold")},
    **{f"feded+{name}": "both define `round`" for name in (*LAZY, "validation-only")},
    **{f"{lazy}+{name}": "both define `round`" for lazy in LAZY for name in ("local", "validation-only")},
    **dict.fromkeys(("centralised+validation-only", "centralised+local"), "both define `several_sites`"),
    **{f"{name}+local": UNUSED for name in ("fedadam", "fedatt", "fedavgm", "fedcmc", "feddyn")},
    "local+scaffold": UNUSED,
    **dict.fromkeys(("feded+local", "local+validation-only"), "both define `round`"),
    "fedprox+local": "no global model to stay near",
    **dict.fromkeys(("centralised+fedrs", "fedrs+local", "fedrs+validation-only"), "nothing to average"),
    "centralised+scaffold": "one place alone has none",
    **dict.fromkeys(("centralised+moon", "local+moon", "moon+validation-only"), ONE_PLACE),
    **dict.fromkeys(("centralised+fedlcc", "fedlcc+local", "fedlcc+validation-only"), ONE_PLACE),
    # These compose, but FedLCC is for documents and the others are for sentences.
    **dict.fromkeys(("att+fedlcc", "att-ra+fedlcc", "ave+fedlcc", "fedlcc+one"), BAGS),
    **{f"fedlcc+{lazy}": BAGS for lazy in LAZY},
    **dict.fromkeys(
        ("feded+fedlcc", "fedlcc+moon", "fedlcc+fedrs", "fedlc+fedlcc", "fedcmc+fedlcc"), SENTENCES
    ),
}

SETTINGS = (
    "methods.fedprox.mu=1.0",
    "methods.feddyn.alpha=0.5",
    "methods.fedlcc.mu=5.0",
    "methods.fedlcc.tau=0.1",
    "methods.centralised.share=0.5",
)


class Trained:
    """The weights after two rounds, by a method's name; each is trained once."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config, self._folder = config.with_settings(SETTINGS), folder
        self._sites = small(prepare(config), 40)
        self._together = with_sites(self._sites, [self._sites.site_data.partition.order])
        self._weights: dict[str, dict[str, np.ndarray]] = {}

    def ready(self, config: Config) -> Preparation:
        pools = method(config.method, config.methods).pools_data
        return self._together if pools else self._sites

    def __call__(self, name: str) -> dict[str, np.ndarray]:
        if name not in self._weights:
            config = self._config.with_settings([f"method={name}"])
            ready = self.ready(config)
            if ready.dataset.corpus.unit == "documents":
                prepare(config)  # refuses methods that choose among sentences
            session = local_session(config, ready, self._folder / name)
            for number in (1, 2):
                session._train(number)
            self._weights[name] = dict(session._fed.model_of(0))  # of most methods, all sites have one model
        return self._weights[name]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    config = tiny(
        data__noise=0.2,
        partition__sites=4,
        partition__kind="dirichlet",
        partition__alpha=0.3,
        partition__coordinator=0.2,
        extractor__bias=False,
        extractor__dropout=0.0,
        training__fraction=1.0,
        training__epochs=1,
    )
    return Trained(config, tmp_path_factory.mktemp("sentences"))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("documents")
    settings = ("extractor.frozen_layers=1", "training.learning_rate=0.3", "partition.coordinator=0.2")
    config = tiny_documents(folder / "data", str(write_encoder(folder / "encoder")), *settings, count=20)
    return Trained(config, folder)


def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of any weight."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def options(name: str) -> dict[str, Any]:
    """The options that each part of a composed method sees."""
    made = method(name, {})
    return {kind.name: vars(made.part(kind)) for kind in parts(name)}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_differs_from_both_parts_or_is_refused(pair: str, request: pytest.FixtureRequest) -> None:
    trained = request.getfixturevalue("documents" if "fedlcc" in pair else "sentences")
    first, second = pair.split("+")
    if pair in REFUSED:
        for name in (pair, f"{second}+{first}"):
            with pytest.raises(UserError, match=REFUSED[pair]):
                trained(name)
    elif pair in IDENTITIES:
        assert composed(parts(pair)) is methods()[IDENTITIES[pair]]
    else:
        assert apart(trained(pair), trained(first)) > 1e-3
        assert apart(trained(pair), trained(second)) > 1e-3
        assert composed(parts(pair)) is composed(parts(f"{second}+{first}"))
        assert options(pair) == options(f"{second}+{first}")


def test_the_refusals_are_those_of_the_documentation():
    """The table under "Composition" in docs/methods.md: names, `each other`, or `every other but` some."""
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    table = page.partition("| refused because | these | with any of |")[2].partition("\n\n")[0]
    listed = set()
    for row in table.splitlines()[2:]:
        reason, left, right = (cell.strip() for cell in row.strip("|").split(" | "))
        first, second = (re.findall("`([^`]+)`", cell) for cell in (left, right))
        if right == "each other":
            second = first
        elif right.startswith("every other but"):
            second = [name for name in NAMES if name not in second]
        assert reason
        listed |= {"+".join(sorted((one, other))) for one in first for other in second if one != other}
    assert listed == set(REFUSED)
