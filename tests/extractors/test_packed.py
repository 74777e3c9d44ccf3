"""Packed layers against Hugging Face's own, in float64, and what bfloat16, parts and dropout do to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrel.extractors.batches import shuffled
from fedrel.extractors.transformer.encoder import Encoder, PackedEncoder, PaddedEncoder, encoder
from fedrel.extractors.transformer.encoder_loading import load_encoder
from fedrel.extractors.transformer.packed import (
    hashed_dropout,
    layer_pass,
    packed_attention,
    packed_layers,
    padded_attention,
)
from fedrel.extractors.transformer.packed.hashed_dropout import Mask, add_dropped, drop, dropped, key
from fedrel.extractors.transformer.pretrained import add_lora
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors import compiling
from fedrel.tensors.machine import cores
from tests.extractors.conftest import write_encoder

LENGTHS = (9, 5, 30, 1, 12)


def starts_of(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def made(folder: str, dtype: torch.dtype = torch.float64) -> tuple[PackedEncoder, Tensor]:
    """An encoder, and vectors for its pieces."""
    model = encoder(load_encoder(folder)).to(dtype).eval()
    assert isinstance(model, PackedEncoder)
    width = model.model.get_input_embeddings().weight.shape[1]
    x = torch.randn(sum(LENGTHS), width, generator=torch_generator(1, "x"), dtype=dtype)
    return model, x.requires_grad_()


def asked(lengths: Sequence[int]) -> Tensor:
    """A few pieces of every text, in no order."""
    random, found = numpy_generator(3, "asked"), []
    for start, length in zip(starts_of(lengths), lengths, strict=False):
        found += (start + random.permutation(length)[:3]).tolist()
    return torch.tensor(found)


def run(
    model: Encoder, x: Tensor, where: Tensor, seed: int | None = None
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The states at some places; and all states, and the attention of these places."""
    starts = starts_of(LENGTHS)
    return (
        model.read(model.enter(x, starts, seed), starts, where, seed),
        *model.attend(model.enter(x, starts, seed), starts, where, seed),
    )


def gradients(model: Encoder, x: Tensor, outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Of a number that depends on all outputs, by every weight and the input."""
    loss = sum(
        (one * torch.linspace(-1, 1, one.numel(), dtype=one.dtype).view(one.shape)).sum() for one in outputs
    )
    weights = {name: one for name, one in model.named_parameters() if one.requires_grad} | {"input": x}
    found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {name: one for name, one in zip(weights, found, strict=True) if one is not None}


def plain(model: Encoder, x: Tensor, where: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The same by Hugging Face's forward pass, text by text."""
    states, attention = [], []
    for a, b in zip(starts_of(LENGTHS), starts_of(LENGTHS)[1:], strict=False):
        found = model.model(inputs_embeds=x[None, a:b], output_attentions=True)
        states.append(found.last_hidden_state[0])
        attention.append(found.attentions[-1][0][:, where[(a <= where) & (where < b)] - a])
    together = torch.cat(states)
    return together[where], together, attention


@pytest.mark.parametrize("way", ["packed", "parts", "recomputed", "padded"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_values_and_gradients_equal_hugging_faces(
    encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    packed, x = made(encoders(kind))
    monkeypatch.setattr(packed_layers, "SPLIT", 8 if way == "parts" else 512)
    monkeypatch.setattr(packed_layers, "KEPT", 0 if way == "recomputed" else 8192)
    monkeypatch.setattr(packed_layers, "AT_ONCE", 6 if way == "recomputed" else 4096)
    model: Encoder = PaddedEncoder(packed.model) if way == "padded" else packed
    where = asked(LENGTHS)
    expected, found = plain(packed, x, where), run(model, x, where)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[2], expected[2], rtol=0, atol=1e-12)
    right = gradients(packed, x, [expected[0], expected[1], *expected[2]])
    got = gradients(packed, x, [found[0], found[1], *found[2]])
    assert got.keys() == right.keys()
    for name, gradient in right.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations(tmp_path_factory: pytest.TempPathFactory, activation: str) -> None:
    folder = str(write_encoder(tmp_path_factory.mktemp(activation), "bert", hidden_act=activation))
    model, x = made(folder)
    where = asked(LENGTHS)
    expected, found = plain(model, x, where), run(model, x, where)
    right, got = (gradients(model, x, [one[0]]) for one in (expected, found))
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-10)


def test_an_unknown_activation_is_left_to_hugging_face(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(write_encoder(tmp_path_factory.mktemp("silu"), "bert", hidden_act="silu"))
    assert isinstance(encoder(load_encoder(folder)), PaddedEncoder)


def test_lora_and_its_gradients_equal_pefts(encoders: Callable[[str], str]) -> None:
    model, x = made(encoders("bert"))
    add_lora(model.model, 2, 0, torch_generator(1, "lora"))
    model.to(torch.float64)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch_generator(2, name))
    where = asked(LENGTHS)
    expected, found = plain(model, x, where), run(model, x, where)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-11)
    right, got = (gradients(model, x, [one[0]]) for one in (expected, found))
    assert {name.split(".")[-2] for name in right if "." in name} == {"default"}
    torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-9)
    with torch.no_grad():  # the cast weights follow the low-rank updates
        next(weight for name, weight in model.named_parameters() if "lora_B" in name).add_(1)
        torch.testing.assert_close(run(model, x, where)[0], plain(model, x, where)[0], rtol=0, atol=1e-11)


def test_gradients_under_dropout_are_those_of_the_function(encoders: Callable[[str], str]) -> None:
    model, x = made(encoders("bert"))
    model.train()
    where, direction = asked(LENGTHS), torch.randn(x.shape, generator=torch_generator(2, "d"), dtype=x.dtype)

    def value(given: Tensor) -> Tensor:
        read, states, attention = run(model, given, where, 7)
        return (
            read.square().sum() + states.square().sum() + sum(one.square().sum() for one in attention)
        ) / 2

    (gradient,) = torch.autograd.grad(value(x), x)
    step = 1e-5
    with torch.no_grad():
        slope = (value(x + step * direction) - value(x - step * direction)) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("precision", "long"), [(torch.float32, 96), (torch.bfloat16, 10)])
def test_two_cores_give_the_bits_of_one(
    encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, precision: torch.dtype, long: int
) -> None:
    monkeypatch.setattr(packed_layers, "SPLIT", 8)
    monkeypatch.setattr(padded_attention, "LONG", long)
    model, x = made(encoders("bert"), torch.float32)
    model.train()
    model.compute_in(precision)
    found = []
    for count in (1, 2):
        with cores(count):
            read, states, attention = run(model, x, asked(LENGTHS), 7)
            found.append([read, states, *attention, *gradients(model, x, [read, states]).values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_parts_change_no_dropout(encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = made(encoders("bert"))
    model.train()
    whole = run(model, x, asked(LENGTHS), 7)
    monkeypatch.setattr(packed_layers, "SPLIT", 8)
    parts = run(model, x, asked(LENGTHS), 7)
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-12)


@pytest.mark.parametrize("long", [1, 10, 1000])  # from how many pieces on attention is computed padded
def test_bfloat16_is_near_float32_and_leaves_weights_and_outputs_float32(
    encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(padded_attention, "LONG", long)
    model, x = made(encoders("bert"), torch.float32)
    exact = run(model, x, asked(LENGTHS))
    right = gradients(model, x, [exact[0], *exact[2]])
    model.compute_in(torch.bfloat16)
    near = run(model, x, asked(LENGTHS))
    got = gradients(model, x, [near[0], *near[2]])
    assert near[0].dtype is torch.float32 and near[2][0].dtype is torch.float32
    assert not torch.equal(near[0], exact[0])
    assert (near[0] - exact[0]).norm() < 0.03 * exact[0].norm()
    matrices = {name for name in right if ".layer." in name and right[name].ndim == 2}
    for name, gradient in right.items():
        as_found = name in matrices and compiling.has_numba()
        assert got[name].dtype is (torch.bfloat16 if as_found else torch.float32), name
        if not name.endswith("key.bias"):  # whose gradient is 0: it adds the same to all of a query's scores
            assert (got[name] - gradient).norm() < 0.1 * gradient.norm() + 1e-3, name
    assert all(weight.dtype is torch.float32 for weight in model.parameters())


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("queries", [40, 5, 0])
def test_padded_attention_is_attention(queries: int, rate: float) -> None:
    """Against the formula in float64, with the mask of dropout written out."""
    heads, length, width = 2, 40, 32

    def drawn(rows: int, columns: int, purpose: str) -> Tensor:
        return torch.randn(rows, columns, generator=torch_generator(1, purpose)).bfloat16()

    query, memory = drawn(queries, width, "query"), drawn(length, 2 * width, "memory")
    dcontext, rows = (
        drawn(queries, width, "gradient"),
        torch.tensor([3, 1] if queries else [], dtype=torch.long),
    )
    mask = Mask(key(5, 1), rate) if rate else None
    context = torch.empty_like(query)
    shares = torch.empty(padded_attention.size(queries, length, heads), dtype=torch.bfloat16)
    told = torch.empty(heads * len(rows) * length)
    padded_attention.attend(query, memory, heads, mask, rows, context, shares, told)
    dquery, dmemory, dtold = (
        torch.empty_like(query),
        torch.empty_like(memory),
        torch.linspace(-1, 1, told.numel()),
    )
    padded_attention.attend_back(dcontext, query, memory, shares, heads, mask, rows, dtold, dquery, dmemory)

    q, m = query.double().requires_grad_(), memory.double().requires_grad_()
    by_head = [x.view(len(x), heads, 16).transpose(0, 1) for x in (q, m[:, :width], m[:, width:])]
    share = (by_head[0] @ by_head[1].transpose(1, 2) / (width / heads) ** 0.5).softmax(2)
    if mask is not None:
        filled = torch.Size((heads, queries + -queries % 32, 64))
        share = share * mask.kept(filled)[:, :queries, :length] / (1 - rate)
    right = (share @ by_head[2]).transpose(0, 1).reshape(queries, width), share[:, rows].reshape(-1)
    torch.autograd.backward(right, [dcontext.double(), dtold.double()])
    for got, expected in ((context, right[0]), (told, right[1]), (dquery, q.grad), (dmemory, m.grad)):
        assert expected is not None
        assert (got.double() - expected).norm() <= 0.02 * expected.norm()


@pytest.mark.parametrize("way", ["other counts", "parts", "recomputed"])
def test_in_bfloat16_too_the_way_changes_nothing_but_rounding(
    encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Two of the five texts count as long. With "other counts", 57 pieces become 64 rows at first, then stay 57."""
    monkeypatch.setattr(padded_attention, "LONG", 10)
    monkeypatch.setattr(layer_pass, "_FEW", 32)
    model, x = made(encoders("bert"), torch.float32)
    model.train()
    model.compute_in(torch.bfloat16)

    def all_of_it() -> list[Tensor]:
        read, states, attention = run(model, x, asked(LENGTHS), 7)
        return [read, states, *attention, *gradients(model, x, [read, states, *attention]).values()]

    first = all_of_it()
    if way == "other counts":
        monkeypatch.setattr(layer_pass, "_STEPS", (1, 1))
    else:
        monkeypatch.setattr(packed_layers, "SPLIT", 8)
    if way == "recomputed":
        monkeypatch.setattr(packed_layers, "KEPT", 0)
        monkeypatch.setattr(packed_layers, "AT_ONCE", 6)
    for one, other in zip(first, all_of_it(), strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() <= 0.03 * other.norm() + 1e-3


def test_weights_are_cast_once_for_as_long_as_they_stay(encoders: Callable[[str], str]) -> None:
    model, x = made(encoders("bert"), torch.float32)
    model.compute_in(torch.bfloat16)
    layers = model._above

    def cast() -> object:
        run(model, x, asked(LENGTHS))
        ((_, found),) = layers._cast.values()
        return found

    first = cast()
    assert cast() is first
    with torch.no_grad():
        next(iter(model.model.encoder.layer.parameters())).add_(1)
    assert cast() is not first


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_and_torch_drop_the_same_numbers(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    x = torch.randn(37, 53, generator=torch_generator(1, "x"))
    o = torch.randn(37, 53, generator=torch_generator(2, "x")).to(dtype)
    mask = Mask(key(5, 1, 2), 0.3, 1_000_003)

    def all_three() -> list[Tensor]:
        return [drop(o, mask), add_dropped(x, o, mask), dropped(x, mask, dtype)]

    by_kernels = all_three()
    monkeypatch.setattr(hashed_dropout, "has_kernels", lambda _: False)
    for one, other in zip(by_kernels, all_three(), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6) if dtype is torch.float32 else None
        torch.testing.assert_close(one.float(), other.float(), rtol=1e-2, atol=1e-2)
    kept = mask.kept(x.shape)
    assert torch.equal(by_kernels[0] != 0, kept) and torch.equal(by_kernels[2] != 0, kept)
    assert torch.equal(by_kernels[1] != x, kept)


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [None, 7])
def test_kernels_and_torch_agree_on_values_and_gradients(
    encoders: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, seed: int | None, precision: torch.dtype
) -> None:
    model, x = made(encoders("bert"), torch.float32)
    model.train(seed is not None)
    model.compute_in(precision)

    def all_of_it() -> list[Tensor]:
        read, states, attention = run(model, x, asked(LENGTHS), seed)
        return [read, states, *attention, *gradients(model, x, [read, states, *attention]).values()]

    by_kernels = all_of_it()
    for module in (hashed_dropout, packed_attention):
        monkeypatch.setattr(module, "has_kernels", lambda _: False)
    near = {"rtol": 1e-4, "atol": 1e-4} if precision is torch.float32 else {"rtol": 0.1, "atol": 0.15}
    for one, other in zip(by_kernels, all_of_it(), strict=True):
        torch.testing.assert_close(one, other, **near)
        assert (one - other).norm() <= near["rtol"] * other.norm() + 0.1 * near["atol"]


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
def test_the_kernels_exponential_is_right_to_the_last_places() -> None:
    import numba

    from fedrel.extractors.transformer.packed.dropout_kernels import raised

    @numba.njit
    def all_raised(numbers: np.ndarray, out: np.ndarray) -> None:
        for place in range(len(numbers)):
            out[place] = raised(numbers[place])

    numbers = np.append(np.linspace(-87, 0, 5001), [-1e9, np.nan]).astype(np.float32)
    found = np.empty_like(numbers)
    all_raised(numbers, found)
    np.testing.assert_allclose(found[:-2], np.exp(numbers[:-2].astype(np.float64)), rtol=3e-7)
    assert found[-2] < 1e-37 and np.isnan(found[-1])


def test_a_hash_keeps_the_share_independently_of_place_and_key() -> None:
    shape = torch.Size((500, 400))
    masks = [Mask(key(seed, 3), 0.1).kept(shape).float() for seed in (1, 2)]
    for mask in masks:
        assert mask.mean().item() == pytest.approx(0.9, abs=0.004)
        for axis in (0, 1):
            assert (mask.mean(axis) - 0.9).abs().max() < 6 * 0.3 / np.sqrt(400)
    others = (masks[1], masks[0].roll(1, 0), masks[0].roll(1, 1))
    assert all(abs((masks[0] * other).mean().item() - 0.81) < 0.005 for other in others)


def test_plain_hugging_face_models_stay_as_they_were(encoders: Callable[[str], str]) -> None:
    """Nothing here changes the model's own forward pass."""
    from transformers import AutoModel

    ids = torch.tensor([[2, 20, 30, 3]])
    untouched = AutoModel.from_pretrained(encoders("bert")).eval()
    model = encoder(AutoModel.from_pretrained(encoders("bert"))).eval()
    with torch.no_grad():
        expected = untouched(input_ids=ids).last_hidden_state
        assert torch.equal(model.model(input_ids=ids).last_hidden_state, expected)


@pytest.mark.parametrize(("count", "size"), [(50, 3), (77, 4), (500, 32)])
def test_batch_mates_repeat_as_rarely_as_by_chance(count: int, size: int) -> None:
    """Of the pairs that share a batch in one epoch, the share that does so in the next one again."""
    random = numpy_generator(1, "shuffle")

    def mates() -> set[tuple[int, int]]:
        return {
            (one, other)
            for batch in shuffled(count, size, random)
            for one in batch.tolist()
            for other in batch.tolist()
            if one < other
        }

    epochs = [mates() for _ in range(200)]
    repeated = sum(len(one & other) for one, other in pairwise(epochs)) / sum(map(len, epochs[:-1]))
    by_chance = np.mean([len(one) for one in epochs]) / (count * (count - 1) / 2)
    assert repeated <= 1.5 * by_chance
    assert sorted(np.concatenate(list(shuffled(count, size, random))).tolist()) == list(range(count))
