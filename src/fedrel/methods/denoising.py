"""The denoising baselines of Lazy MIL's paper (Sui et al. 2021, Algorithm 3): FedAvg with a bag head at each site.

Each site handles label noise with its own sentences only. How a head reads a bag is in `extractors/heads.py`.
"""

from __future__ import annotations

from typing import ClassVar

from fedrel.methods.fedavg import FedAvg

LIN = "Lin et al. 2016, Neural Relation Extraction with Selective Attention over Instances"


class NoDenoising(FedAvg):
    """NONE: every sentence keeps its bag's label; FedAvg under the name of Lazy MIL's paper."""

    name: ClassVar[str] = "none"
    paper: ClassVar[str] = (
        "Sui et al. 2021, Distantly Supervised Relation Extraction in Federated Settings, Algorithm 3"
    )


class AtLeastOne(FedAvg):
    """ONE: a site trains on the best sentence of each bag."""

    name: ClassVar[str] = "one"
    paper: ClassVar[str] = (
        "Zeng et al. 2015, Distant Supervision for Relation Extraction via Piecewise Convolutional Neural Networks"
    )
    train_head: ClassVar[str] = "one"
    test_head: ClassVar[str] = "one"


class Average(FedAvg):
    """AVE: a bag is the mean of its sentences."""

    name: ClassVar[str] = "ave"
    paper: ClassVar[str] = LIN
    train_head: ClassVar[str] = "ave"
    test_head: ClassVar[str] = "ave"


class Attention(FedAvg):
    """ATT: a bag is the mean of its sentences, weighted by selective attention."""

    name: ClassVar[str] = "att"
    paper: ClassVar[str] = LIN
    train_head: ClassVar[str] = "att"
    test_head: ClassVar[str] = "att"


class RelationAwareAttention(FedAvg):
    """ATT_RA: a bag has a vector for every relation."""

    name: ClassVar[str] = "att-ra"
    paper: ClassVar[str] = (
        "Ye and Ling 2019, Distant Supervision Relation Extraction with Intra-Bag and Inter-Bag Attentions"
    )
    train_head: ClassVar[str] = "att_ra"
    test_head: ClassVar[str] = "att_ra"
