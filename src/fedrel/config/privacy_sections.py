"""`[privacy]` and `[privacy.dp]`: what makes messages and models tell less."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fedrel.config.check import Section


class DifferentialPrivacy(Section):
    """How noise bounds what a model tells about a site, or about a sentence (docs/differential-privacy.md)."""

    level: Literal["site", "sentence"]
    """Whose presence the noise hides: `site`, all that a site holds, by noise on the sum of the sites' updates;
    `sentence`, one sentence of a site, by noise on every step of the site's own training (DP-SGD)."""
    noise: float = Field(ge=0.05, allow_inf_nan=False)
    """The noise multiplier: the standard deviation of the noise on a sum, divided by `clip`. With less than 0.05, ε
    is in the hundreds and promises nothing."""
    clip: float = Field(gt=0, allow_inf_nan=False)
    """S, the largest norm of what is added to a sum: a site's update, or a sentence's gradient. A longer one is
    scaled down to it. With `adaptive_clip`, that of the first round."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ: the stated ε holds but for this probability. It should be well below one in the number of sites, or of
    sentences."""
    sampling: Literal["poisson", "fixed"] = "poisson"
    """Of `site`, how a round's sites are drawn: `poisson`, each by itself with probability `training.fraction`, so
    that their number varies; `fixed`, always as many, for which only a weaker bound on ε is known."""
    adaptive_clip: float | None = Field(None, gt=0, lt=1)
    """Of `site`: the norm follows this quantile of the updates' norms, such as 0.5 (Andrew et al. 2021); none: it
    stays `clip`."""

    @model_validator(mode="after")
    def _keys_of_the_level(self) -> DifferentialPrivacy:
        if self.level == "sentence" and self.adaptive_clip is not None:
            raise ValueError('adaptive_clip is for level = "site": leave it out')
        if self.level == "sentence" and "sampling" in self.model_fields_set and self.sampling != "poisson":
            raise ValueError('with level = "sentence" sentences are always drawn by poisson sampling')
        return self


class PrivacySection(Section):
    """What makes messages tell less."""

    secure_sum: bool = False
    """The coordinator gets the sum of the sites' answers, and nothing else of any of them (docs/secure-sums.md)."""
    min_cohort: int = Field(3, ge=3)
    """The fewest sites that a secure sum may be over."""
    threshold: float | None = Field(None, ge=2 / 3, le=1)
    """The part of a site's peers that must work together to uncover a secret of it; without it, two thirds."""
    range: float = Field(4.0, gt=0, allow_inf_nan=False)
    """The largest change of a weight in a round that fits a secure sum's numbers; a larger one is clipped."""
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    """With secure sums: the largest norm of a site's update. The site itself scales a longer one down to it, since
    nobody else sees it; none: updates are not scaled."""
    dp: DifferentialPrivacy | None = None
    """Differential privacy, a section of its own; none: no noise is added."""
    vouched: bool = False
    """Between real sites: a site trains global weights only if they are made of updates that sites vouch for
    (docs/protection.md)."""

    @model_validator(mode="after")
    def _clip_of_sums(self) -> PrivacySection:
        if self.clip is not None and not self.secure_sum:
            raise ValueError("privacy.clip is for secure sums: use aggregation.norm_bound without them")
        if self.clip is not None and self.site_noise:
            raise ValueError("privacy.dp has a clip of its own: leave privacy.clip out")
        return self

    @property
    def site_noise(self) -> DifferentialPrivacy | None:
        """The section, if noise on sums of updates hides sites."""
        return self.dp if self.dp and self.dp.level == "site" else None

    @property
    def sentence_noise(self) -> DifferentialPrivacy | None:
        """The section, if noise on the steps of local training hides sentences."""
        return self.dp if self.dp and self.dp.level == "sentence" else None
