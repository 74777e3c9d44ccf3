"""Defences: settings that are laid over a config before its rounds are attacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.config.schema import Config
from fedrel.federation.rounds import draw
from fedrel.methods.by_name import option_settings

NONE = "none"
CLIP, DELTA = 0.1, 1e-5  # of differential privacy; a larger norm's noise may ruin the model


@dataclass(frozen=True, slots=True)
class LeakDefence:
    """A name, what it means, and its settings."""

    name: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the method's options, as far as it has them."""
    little: bool = False
    """Whether as little is trained as noise needs: no words, or of a transformer, low-rank updates."""
    epsilon: float | None = None
    """ε of differential privacy, whose noise depends on the run (`noise_settings`)."""
    level: Literal["site", "sentence"] = "site"
    """What that noise hides."""
    needs: str | None = None
    """An option of the extractor without which it does not apply."""

    def fits(self, config: Config) -> bool:
        """Whether the config's extractor has what the defence is about."""
        return self.needs is None or self.needs in type(config.extractor).model_fields

    def over(self, config: Config) -> dict[str, Any]:
        """The settings for a config with its method."""
        return {
            **_exposed(config),
            **self.settings,
            **(_little(config) if self.little else {}),
            **option_settings(config.method, self.options),
        }


def _exposed(config: Config) -> dict[str, Any]:
    """What "no defence" means: all words trained, no secure sums, claims with numbers and exact values."""
    fields = type(config.extractor).model_fields
    words = {"extractor.train_words": True} if "train_words" in fields else {}
    layers = {"extractor.frozen_layers": 0, "extractor.lora_rank": 0} if "lora_rank" in fields else {}
    return {
        **words,
        **layers,
        **option_settings(config.method, {"keyed_triples": False, "levels": 0}),
        "privacy.secure_sum": False,
        "privacy.dp": None,
    }


def _little(config: Config) -> dict[str, Any]:
    return _FIXED if "train_words" in type(config.extractor).model_fields else _LORA


_SUMMED = {"privacy.secure_sum": True}
_FIXED = {"extractor.train_words": False}
_LORA = {"extractor.lora_rank": 8}
_AGREED = {"keyed_triples": True, "levels": 16}
_DEFENCES = (
    LeakDefence(
        NONE, "words are trained, claims carry the numbers of facts, the coordinator sees every answer"
    ),
    LeakDefence(
        "fixed-words",
        "`train_words = false`: words are neither trained nor sent",
        _FIXED,
        needs="train_words",
    ),
    LeakDefence(
        "frozen",
        "`frozen_layers = 1`: embeddings and the first layer stay as published",
        {"extractor.frozen_layers": 1},
        needs="frozen_layers",
    ),
    LeakDefence(
        "lora",
        "`lora_rank = 8`: only low-rank updates are trained and sent",
        _LORA,
        needs="lora_rank",
    ),
    LeakDefence(
        "agreed",
        "the defaults between real sites: fixed words, keyed claims, claims and predictions in 16 levels",
        _FIXED,
        _AGREED,
        needs="train_words",
    ),
    LeakDefence(
        "secure-sums",
        "`privacy.secure_sum`: the coordinator sees the sum over the active sites",
        _SUMMED,
    ),
    LeakDefence(
        "agreed-sums",
        "both: `agreed` and secure sums",
        {**_FIXED, **_SUMMED},
        _AGREED,
        needs="train_words",
    ),
    *(
        LeakDefence(
            f"dp-{epsilon}",
            f"fixed words (of a transformer LoRA), secure sums with noise in shares: ε {epsilon} for all that a "
            f"site holds, δ {DELTA:g}, updates clipped to {CLIP:g}",
            _SUMMED,
            little=True,
            epsilon=epsilon,
        )
        for epsilon in (8, 1)
    ),
    *(
        LeakDefence(
            f"sentence-dp-{epsilon}",
            f"fixed words (of a transformer LoRA), noise on every step of a site (DP-SGD): ε {epsilon} for one "
            f"sentence, δ {DELTA:g}, gradients clipped to {CLIP:g}",
            little=True,
            epsilon=epsilon,
            level="sentence",
        )
        for epsilon in (8, 1)
    ),
)
DEFENCES: Mapping[str, LeakDefence] = {one.name: one for one in _DEFENCES}


def noise_settings(
    config: Config, defence: LeakDefence, sizes: npt.NDArray[np.int64], rounds: int
) -> dict[str, Any]:
    """Settings of noise with which the site that is drawn most often in these rounds spends the defence's ε.

    Under secure sums who takes part is no secret, so that only the rounds of a site count, each in full. At
    sentence level, a site of middling size.
    """
    from fedrel.privacy.differential_privacy import (
        Steps,
        check_accountant,
        composed_epsilon,
        local_steps,
        noise_for,
    )

    assert defence.epsilon is not None, "asked of a defence by noise"
    check_accountant()
    drawn = [
        draw(sizes, config.training.fraction, config.seed, number, 0).sites for number in range(1, rounds + 1)
    ]
    often = max(Counter(site for sites in drawn for site in sites).values(), default=1)
    size = int(np.median(sizes[sizes > 0]))

    def section(noise: float) -> DifferentialPrivacy:
        drawing: dict[str, Any] = {"sampling": "fixed"} if defence.level == "site" else {}
        return DifferentialPrivacy(level=defence.level, noise=noise, clip=CLIP, delta=DELTA, **drawing)

    def cost(noise: float) -> float:
        if defence.level == "sentence":
            return composed_epsilon([local_steps(section(noise), config.training, size, often)], DELTA)
        # Noise in shares is composed by Rényi divergences, whatever Skellam's noise adds to them.
        return composed_epsilon([Steps(noise, 1.0, often, extra=1e-9)], DELTA)

    found = section(round(noise_for(defence.epsilon, cost), 4))
    return {"privacy.dp": found.model_dump(mode="json", exclude_unset=True)}


def fitting(config: Config) -> list[str]:
    """The defences that apply to a config."""
    return [name for name, one in DEFENCES.items() if one.fits(config)]
