"""Encoders that also return the last layer's attention, which localized context pooling is made of.

All pieces' last states are returned, since any may be part of a context; attention only for the pieces that are
asked for, the mentions' markers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrel.errors import UserError
from fedrel.extractors.transformer.encoder import BERT_FAMILY, Encoder, LayeredEncoder, WholeEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Attending(Encoder):
    """An encoder that returns its attention."""

    @abstractmethod
    def attend(self, states: Tensor, real: Tensor | None, where: Tensor) -> tuple[Tensor, Tensor]:
        """The last states of all pieces, [B, L, d], and the last layer's attention, [B, h, Q, L].

        `states` are what `enter` gave. Attention is that of the pieces at `where` [B, Q] to all pieces, in each of
        h heads; `real` [B, L] tells pieces from padding.
        """


class AttendingLayers(LayeredEncoder, Attending):
    """An encoder of BERT's family."""

    def attend(self, states: Tensor, real: Tensor | None, where: Tensor) -> tuple[Tensor, Tensor]:
        """Layer by layer, the last one by hand."""
        bias = None
        if real is not None:  # added to attention's scores: no piece looks at padding
            bias = states.new_zeros(real.shape).masked_fill_(~real, torch.finfo(states.dtype).min)
            bias = bias[:, None, None, :]
        *below, last = self._layers[self.frozen :]
        for layer in below:
            states = layer(states, bias)
        return _with_attention(last, states, bias, where)


class AttendingWhole(WholeEncoder, Attending):
    """An encoder of any other architecture, by its own forward pass."""

    def attend(self, states: Tensor, real: Tensor | None, where: Tensor) -> tuple[Tensor, Tensor]:
        """The model's last states and attention."""
        found = self.model(inputs_embeds=states, attention_mask=real, output_attentions=True)
        return found.last_hidden_state, _rows(found.attentions[-1], where)


def attending(model: PreTrainedModel, frozen: int = 0) -> Attending:
    """The class that runs a model of this architecture; its last layer, whose attention is read, is not frozen."""
    kind = model.config.model_type
    if kind in BERT_FAMILY:
        layers = AttendingLayers(model, frozen)
        if frozen == model.config.num_hidden_layers:
            problem = f"extractor.frozen_layers is {frozen}: all that the encoder has"
            raise UserError(
                problem, hint=f"set it to {frozen - 1} or less: the last layer's attention is read"
            )
        return layers
    if frozen:
        problem = f"extractor.frozen_layers is {frozen}, but the layers of {kind!r} cannot be told apart here"
        known = ", ".join(sorted(BERT_FAMILY))
        raise UserError(problem, hint=f"set it to 0, or name an encoder of {known}")
    return AttendingWhole(model)


def _with_attention(layer: Any, states: Tensor, bias: Tensor | None, where: Tensor) -> tuple[Tensor, Tensor]:
    """A layer of BERT's family, and the attention of some of the pieces, after dropout, as the layer uses it."""
    attention = layer.attention.self

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, attention.attention_head_size).transpose(1, 2)

    query, key, value = (heads(part(states)) for part in (attention.query, attention.key, attention.value))
    scores = query @ key.transpose(2, 3) * attention.scaling
    if bias is not None:
        scores = scores + bias
    shares = F.dropout(scores.softmax(3), attention.dropout.p, attention.training)
    context = (shares @ value).transpose(1, 2).flatten(2)
    output: Tensor = layer.feed_forward_chunk(layer.attention.output(context, states))
    return output, _rows(shares, where)


def _rows(attention: Tensor, where: Tensor) -> Tensor:
    """The rows at `where` [B, Q] of attention [B, h, L, L]."""
    batch, heads, _, length = attention.shape
    return attention.gather(2, where[:, None, :, None].expand(batch, heads, where.shape[1], length))
