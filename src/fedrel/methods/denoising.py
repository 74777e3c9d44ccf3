"""The denoising baselines of Lazy MIL's paper (Sui et al. 2021, Algorithm 3): FedAvg, a bag head at each site.

Each site fights label noise with its own sentences only. How a head reads a bag is in `extractors/bags.py`.
"""

from __future__ import annotations

from typing import ClassVar

from fedrel.methods.fedavg import FedAvg


class NoDenoising(FedAvg):
    """NONE: every sentence keeps its bag's label."""

    name: ClassVar[str] = "none"


class AtLeastOne(FedAvg):
    """ONE (Zeng et al. 2015): the best sentence of each bag stands for it."""

    name: ClassVar[str] = "one"
    train_head: ClassVar[str] = "one"
    test_head: ClassVar[str] = "one"


class Average(FedAvg):
    """AVE (Lin et al. 2016): a bag is the mean of its sentences."""

    name: ClassVar[str] = "ave"
    train_head: ClassVar[str] = "ave"
    test_head: ClassVar[str] = "ave"


class Attention(FedAvg):
    """ATT (Lin et al. 2016): a bag is the mean of its sentences, weighted by selective attention."""

    name: ClassVar[str] = "att"
    train_head: ClassVar[str] = "att"
    test_head: ClassVar[str] = "att"


class RelationAwareAttention(FedAvg):
    """ATT_RA (Ye and Ling 2019): a bag vector for every relation."""

    name: ClassVar[str] = "att-ra"
    train_head: ClassVar[str] = "att_ra"
    test_head: ClassVar[str] = "att_ra"
