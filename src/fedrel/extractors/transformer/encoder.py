"""Running a Hugging Face encoder, with the last layer only for the pieces whose states are needed; and LoRA.

A pooling reads a few pieces of a sentence. The last layer's queries, outputs and feed-forward network, ten of its
twelve parts of the work, are needed for those only; its keys and values for all. In an encoder of six layers that
saves a tenth of every pass, forward and backward, and changes no result.

With LoRA (Hu et al. 2022), only low-rank updates of some matrices are trained and sent.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrel.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


BERT_FAMILY = frozenset({"bert", "camembert", "electra", "roberta", "xlm-roberta"})  # one shape of layers


class Encoder(nn.Module, ABC):
    """From the vectors of a sentence's pieces to their last states, in two steps; the first may be frozen."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = model
        self.width = int(model.config.hidden_size)

    @abstractmethod
    def enter(self, vectors: Tensor) -> Tensor:
        """The input of the remaining layers, [B, L, d], from the pieces' vectors, [B, L, e].

        With frozen layers, sentences must have no padding.
        """

    @abstractmethod
    def read(self, states: Tensor, real: Tensor | None, where: Tensor) -> Tensor:
        """The last states of the pieces at `where` [B, Q], [B, Q, d]; `real` [B, L] tells pieces from padding."""


class LayeredEncoder(Encoder):
    """An encoder of BERT's family, layer by layer; the embeddings and the lowest `frozen` layers may be frozen."""

    def __init__(self, model: PreTrainedModel, frozen: int = 0) -> None:
        super().__init__(model)
        layers = len(self._layers)
        if frozen > layers:
            problem = f"extractor.frozen_layers is {frozen}, but the encoder has {layers} layers"
            raise UserError(problem, hint=f"set it to {layers} or less")
        self.frozen = frozen
        for module in self._frozen_modules():
            module.requires_grad_(False)

    def enter(self, vectors: Tensor) -> Tensor:
        """Embeddings and frozen layers."""
        states: Tensor = self.model.embeddings(inputs_embeds=vectors)
        if hasattr(self.model, "embeddings_project"):  # ELECTRA's are narrower than its layers
            states = self.model.embeddings_project(states)
        for layer in self._layers[: self.frozen]:
            states = layer(states)
        return states

    def read(self, states: Tensor, real: Tensor | None, where: Tensor) -> Tensor:
        """The layers that are not frozen."""
        bias = None
        if real is not None:  # added to attention's scores: no piece looks at padding
            bias = states.new_zeros(real.shape).masked_fill_(~real, torch.finfo(states.dtype).min)
            bias = bias[:, None, None, :]
        above = self._layers[self.frozen :]
        for layer in above[:-1]:
            states = layer(states, bias)
        return _last_layer(above[-1], states, bias, where) if len(above) else _pick(states, where)

    def train(self, mode: bool = True) -> Self:
        """Frozen layers stay in evaluation mode, so that the layers above always get the same for a sentence."""
        super().train(mode)
        for module in self._frozen_modules():
            module.eval()
        return self

    @property
    def _layers(self) -> nn.ModuleList:
        layers: nn.ModuleList = self.model.encoder.layer
        return layers

    def _frozen_modules(self) -> list[nn.Module]:
        if not self.frozen:
            return []
        project = getattr(self.model, "embeddings_project", None)
        below = [self.model.embeddings, *self._layers[: self.frozen]]
        return below if project is None else [*below, project]


class WholeEncoder(Encoder):
    """An encoder of any other architecture, by its own forward pass."""

    def enter(self, vectors: Tensor) -> Tensor:
        """The vectors as they are."""
        return vectors

    def read(self, states: Tensor, real: Tensor | None, where: Tensor) -> Tensor:
        """The model's last states."""
        return _pick(self.model(inputs_embeds=states, attention_mask=real).last_hidden_state, where)


def encoder(model: PreTrainedModel, frozen: int = 0) -> Encoder:
    """The class that runs a model of this architecture."""
    kind = model.config.model_type
    if kind in BERT_FAMILY:
        return LayeredEncoder(model, frozen)
    if frozen:
        problem = f"extractor.frozen_layers is {frozen}, but the layers of {kind!r} cannot be told apart here"
        raise UserError(problem, hint=f"set it to 0, or name an encoder of {', '.join(sorted(BERT_FAMILY))}")
    return WholeEncoder(model)


def _last_layer(layer: Any, states: Tensor, bias: Tensor | None, where: Tensor) -> Tensor:
    """A layer of BERT's family, computed for some of the pieces only."""
    attention = layer.attention.self
    asked = _pick(states, where)

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, attention.attention_head_size).transpose(1, 2)

    keys, values = heads(attention.key(states)), heads(attention.value(states))
    scores = heads(attention.query(asked)) @ keys.transpose(2, 3) * attention.scaling
    if bias is not None:
        scores = scores + bias
    shares = F.dropout(scores.softmax(3), attention.dropout.p, attention.training)
    context = (shares @ values).transpose(1, 2).flatten(2)
    output: Tensor = layer.feed_forward_chunk(layer.attention.output(context, asked))
    return output


def _pick(states: Tensor, where: Tensor) -> Tensor:
    """The states of the pieces at `where`, [B, Q, d]."""
    return states.gather(1, where[:, :, None].expand(-1, -1, states.shape[2]))


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
