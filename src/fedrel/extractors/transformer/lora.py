"""LoRA (Hu et al. 2022): only low-rank updates of some of an encoder's matrices are trained and sent."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from fedrel.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


SCALING = 2  # alpha over rank: the factor of a low-rank update


def add_lora(model: PreTrainedModel, rank: int, first_layer: int, generator: torch.Generator) -> None:
    """Freeze a model and replace matrices W of its layers, from `first_layer` on, by W + 2 BA.

    peft knows for each architecture which matrices these are (queries and values, as published), and takes all
    where it does not. B begins at zero; A is drawn as by peft, but from the given generator.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN
    except ImportError as error:
        problem = "extractor.lora_rank needs the package peft"
        raise UserError(problem, hint="run `pip install 'fedrel[lora]'`") from error

    layers = list(range(first_layer, model.config.num_hidden_layers))
    if not layers:
        problem = "extractor.lora_rank adapts layers, but extractor.frozen_layers freezes them all"
        raise UserError(problem, hint="set one of the two to 0")
    config = LoraConfig(
        r=rank,
        lora_alpha=SCALING * rank,
        target_modules=None if model.config.model_type in KNOWN else "all-linear",
        layers_to_transform=layers if first_layer else None,
    )
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)


def without_lora(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model with its low-rank updates added to the matrices they belong to."""
    from peft.tuners.lora import LoraLayer

    merged = copy.deepcopy(model)
    for name, module in list(merged.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(merged.get_submodule(parent), child, module.get_base_layer())
    return merged
