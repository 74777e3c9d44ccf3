from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.align import align, read_kb
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance
from fedrel.data.text import tokenise
from fedrel.data.world import SPLITS, World, WorldConfig, nyt10_shape, split_sizes
from fedrel.data.world.catalogue import RELATIONS
from fedrel.data.world.grammar import Frame, expressing, real_words
from fedrel.data.world.invented_words import WordMaker, zipf_cdf
from fedrel.data.world.knowledge import bag_sizes, noise_rates
from fedrel.data.world.prose import MAX_TOKENS
from fedrel.errors import UserError
from fedrel.seeding import numpy_generator

SMALL = WorldConfig(sentences=2_000, seed=5)


@cache
def whole(config: WorldConfig) -> tuple[World, tuple[tuple[int, Instance], ...]]:
    world = World(config)
    return world, tuple(world.instances())


def pair_of(instance: Instance) -> tuple[str, str]:
    return instance.head.id, instance.tail.id


def noise_of(instances: list[Instance]) -> float:
    return 1 - np.mean([instance.expresses for instance in instances if instance.relation != NA])


def test_same_config_gives_the_same_sentences_and_any_prefix_of_them() -> None:
    _, first = whole(SMALL)
    assert tuple(World(SMALL).instances()) == first
    assert tuple(islice(World(SMALL).instances(), 700)) == first[:700]
    _, other = whole(dataclasses.replace(SMALL, seed=6))
    assert other[:50] != first[:50]


def test_two_streams_of_one_world_do_not_disturb_each_other() -> None:
    world, expected = whole(SMALL)
    one, two = world.instances(), world.instances()
    interleaved = [next(stream) for _ in range(100) for stream in (one, two)]
    assert interleaved[0::2] == interleaved[1::2] == list(expected[:100])


def test_sizes_are_those_asked_for() -> None:
    config = WorldConfig(sentences=5_000, pairs=2_000, relations=12, dev=0.2, test=0.3, seed=1)
    world, instances = whole(config)
    assert Counter(split for split, _ in instances) == {0: 4_000, 1: 1_000, 2: 1_500}
    pairs = [{pair_of(i) for split, i in instances if split == number} for number in range(3)]
    assert len(pairs[0]) + len(pairs[1]) == 2_000
    assert len(pairs[2]) == 600
    assert not pairs[0] & pairs[1] and not pairs[0] & pairs[2] and not pairs[1] & pairs[2]
    assert len(world.relations) == 12 and world.relations[0] == NA
    assert {i.relation for split, i in instances if split == 0} == set(world.relations)
    na = sum(i.relation == NA for _, i in instances) / len(instances)
    assert na == pytest.approx(config.na_share, abs=0.001)


def test_nyt10_shape_has_its_published_sizes() -> None:
    config = nyt10_shape()
    train, dev, test = split_sizes(config)
    sentences = [size.fact_sentences + size.na_sentences for size in (train, dev, test)]
    pairs = [size.fact_pairs + size.na_pairs for size in (train, dev, test)]
    assert sentences == pytest.approx([466_876, 55_167, 172_448], rel=0.001)
    assert sum(pairs[:2]) == 281_000 and pairs[2] == pytest.approx(96_678, rel=0.05)
    assert config.relations == 53 and config.vocabulary == 114_000 and config.mean_length == 40


@pytest.mark.parametrize("noise", [0.2, 0.4, 0.7])
def test_noise_is_about_what_was_asked_for(noise: float) -> None:
    _, instances = whole(WorldConfig(sentences=4_000, noise=noise, mean_length=14, seed=2))
    assert noise_of([i for _, i in instances]) == pytest.approx(noise, abs=0.04)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_noise_at_its_ends_is_exact(noise: float) -> None:
    _, instances = whole(WorldConfig(sentences=1_000, noise=noise, missing=0.0))
    assert noise_of([i for _, i in instances]) == noise
    assert all(i.expresses for _, i in instances if i.relation == NA)


def test_popular_pairs_are_noisier() -> None:
    """At popularity 2 the odds of noise of a pair are 100 times as high for ten sentences as for one."""
    sizes = np.repeat([1, 10], [1000, 100])
    rates = noise_rates(sizes, np.ones(1100, bool), 0.5, 2.0, np.random.default_rng(1))
    assert np.average(rates, weights=sizes) == pytest.approx(0.5, abs=0.02)
    one, ten = rates[sizes == 1].mean(), rates[sizes == 10].mean()
    assert ten / (1 - ten) / (one / (1 - one)) == pytest.approx(100, rel=0.4)


def test_noise_comes_in_clumps() -> None:
    """Two sentences of a bag are both wrong with p^2 + pq/3 = 0.24 at noise 0.4, not p^2 = 0.16 (Beta of sum 2)."""
    config = WorldConfig(sentences=10_000, noise=0.4, popularity=0.0, mean_length=14, seed=2)
    _, instances = whole(config)
    bags = defaultdict(list)
    for _, instance in instances:
        if instance.relation != NA:
            bags[pair_of(instance)].append(not instance.expresses)
    counts = [(sum(bag), len(bag)) for bag in bags.values() if len(bag) > 1]
    both = np.mean([wrong * (wrong - 1) / (size * (size - 1)) for wrong, size in counts])
    assert both == pytest.approx(0.24, abs=0.03)
    assert sum(wrong == size for wrong, size in counts) > 50


def test_missing_facts_are_na_pairs_whose_text_states_a_relation() -> None:
    _, instances = whole(WorldConfig(sentences=5_000, noise=0.0, missing=0.1, mean_length=14, seed=3))
    wrong = {pair_of(i): not i.expresses for _, i in instances if i.relation == NA}
    assert np.mean(list(wrong.values())) == pytest.approx(0.1, abs=0.02)


def test_lengths_spread_around_their_mean_and_end() -> None:
    for mean in (20, 40, 60):
        _, instances = whole(WorldConfig(sentences=2_000, mean_length=mean, styles=8, seed=4))
        lengths = np.array([len(i.tokens or ()) for _, i in instances])
        assert lengths.mean() == pytest.approx(mean, rel=0.08)
        assert 0.25 < lengths.std() / lengths.mean() < 0.6
        assert lengths.max() <= MAX_TOKENS


def test_bags_are_heavy_tailed_and_add_up() -> None:
    sizes = bag_sizes(40_000, 10_000, 1.5, numpy_generator(0, "bags"))
    assert sizes.sum() == 40_000 and sizes.min() == 1
    assert sizes.max() > 20 * sizes.mean()
    assert np.median(sizes) < sizes.mean() / 1.5
    assert np.bincount(bag_sizes(10, 10, 1.5, numpy_generator(0, "bags"))).tolist() == [0, 10]


def test_filler_words_follow_zipf() -> None:
    world, instances = whole(WorldConfig(sentences=10_000, seed=7))
    names = {token.lower() for e in world.entities for name in e.names for token in name.split()}
    counts = Counter(token for _, i in instances for token in re.findall(r"\b[a-z]+\b", i.text))
    known = real_words() | names
    content = sorted((n for w, n in counts.items() if w not in known), reverse=True)
    ranks = np.arange(20, 1_000)
    slope = np.polyfit(np.log(ranks), np.log(content[20:1_000]), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.2)
    assert len(content) > 0.9 * world.config.vocabulary


def test_mentions_stand_where_the_spans_say() -> None:
    world, instances = whole(SMALL)
    names = {entity.id: entity.names for entity in world.entities}
    for _, instance in instances:
        for mention in (instance.head, instance.tail):
            assert instance.text[mention.start : mention.end] == mention.name
            assert mention.name in names[mention.id]
        assert instance.tokens == tuple(tokenise(instance.text))
        starts, ends = {a for a, _ in instance.tokens}, {b for _, b in instance.tokens}
        assert {instance.head.start, instance.tail.start} <= starts
        assert {instance.head.end, instance.tail.end} <= ends
    assert {i.source for _, i in instances} == set(world.styles)
    assert {i.head.name in names[i.head.id][1:] for _, i in instances} == {True, False}


def test_text_is_punctuated_as_prose() -> None:
    _, instances = whole(WorldConfig(sentences=2_000, mean_length=40, styles=8, relations=53, seed=8))
    for _, instance in instances:
        text = instance.text
        assert text[0].isupper() and text.endswith(".") and text.count(".") == 1
        assert not re.search(r",,|[,;:(] ?[,;:.)]|  | [,;:.)]|@|\{|%", text), text


def test_names_are_unique_and_no_filler_word_is_a_name() -> None:
    world, instances = whole(SMALL)
    names = [name.lower() for entity in world.entities for name in entity.names]
    assert len(names) == len(set(names))
    words = {word for _, i in instances for word in re.findall(r"\b[a-z]+\b", i.text)}
    assert not words & set(names)


def test_every_lower_case_word_is_a_real_one_of_the_templates_or_an_invented_one() -> None:
    world, instances = whole(SMALL)
    words = {word for _, i in instances for word in re.findall(r"\b[a-z]+\b", i.text)}
    invented = {w for kind in world._grammar._vocabularies[0].words.values() for w in kind}
    assert words <= real_words() | invented
    assert not invented & real_words()


def test_training_knowledge_base_has_exactly_the_training_facts(tmp_path: Path) -> None:
    world, instances = whole(SMALL)
    world.kb(tmp_path / "kb.tsv")
    rows = [line.split("\t") for line in (tmp_path / "kb.tsv").read_text().splitlines()]
    seen = {(i.head.id, i.relation, i.tail.id) for split, i in instances if split == 0 and i.relation != NA}
    assert {(row[0], row[2], row[3]) for row in rows} == seen and len(rows) == len(seen)
    assert {(head.id, relation, tail.id) for head, relation, tail in world.facts()} == seen
    names = {entity.id: "|".join(entity.names) for entity in world.entities}
    assert all(row[1] == names[row[0]] and row[4] == names[row[3]] for row in rows)


@pytest.mark.parametrize("split", SPLITS)
def test_aligning_the_documents_finds_every_instance_again(tmp_path: Path, split: str) -> None:
    config = WorldConfig(sentences=2_000, styles=8, relations=30, seed=9)
    world, instances = whole(config)
    world.documents(tmp_path / "text", split, files=2)
    world.kb(tmp_path / "kb.tsv", split, na=True)
    paths = sorted((tmp_path / "text").iterdir())
    assert [path.name for path in paths[:2]] == ["clinic-00.txt", "clinic-01.txt"]
    found = align(paths, read_kb(tmp_path / "kb.tsv"), na_rate=0.0, seed=0)
    written = [i for number, i in instances if SPLITS[number] == split]
    assert Counter(places(a, a.source.rpartition("-")[0]) for a in found) == Counter(
        places(i, i.source) for i in written
    )


def places(instance: Instance, style: str) -> tuple[object, ...]:
    mentions = ((m.id, m.start, m.end) for m in (instance.head, instance.tail))
    return instance.text, *mentions, instance.relation, style


def test_documents_are_prose_with_more_in_it_than_the_instances(tmp_path: Path) -> None:
    world, instances = whole(SMALL)
    world.documents(tmp_path / "one")
    World(SMALL).documents(tmp_path / "two")
    texts = {path.name: path.read_text() for path in (tmp_path / "one").iterdir()}
    assert texts == {path.name: path.read_text() for path in (tmp_path / "two").iterdir()}
    assert len(texts) == 4 * len(world.styles)
    everything = "\n\n".join(texts.values())
    assert all(instance.text in everything for split, instance in instances if split == 0)
    assert everything.count(". ") + everything.count(".\n") > 1.5 * split_total(instances, 0)


def split_total(instances: tuple[tuple[int, Instance], ...], split: int) -> int:
    return sum(number == split for number, _ in instances)


def test_documents_refuse_an_existing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists"):
        World(SMALL).documents(tmp_path)


def test_an_unknown_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'train'"):
        World(SMALL).kb(tmp_path / "kb.tsv", "trian")


@pytest.mark.parametrize(
    ("field", "value"),
    [("sentences", 999), ("relations", 99), ("noise", 1.5), ("styles", 0), ("pairs", 12_001), ("pairs", 5)],
)
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{field} is {value}, expected"):
        dataclasses.replace(WorldConfig(), **{field: value})


def test_text_around_noise_and_na_is_of_one_kind() -> None:
    """What a noisy sentence says is drawn like an NA sentence's: the words between are about as frequent."""
    config = WorldConfig(sentences=5_000, relations=4, noise=1.0, missing=0.0, mean_length=14, seed=11)
    _, instances = whole(config)
    kinds: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for _, i in instances:
        first, second = sorted((i.head, i.tail), key=lambda mention: mention.start)
        kinds[i.relation == NA].update(re.findall(r"\b[a-z]+\b", i.text[first.end : second.start]))
    for word in ("and", "was", "like", "of", "while"):
        shares = [kinds[na][word] / kinds[na].total() for na in (True, False)]
        assert shares[0] == pytest.approx(shares[1], rel=0.25)


def test_relations_can_be_said_in_many_ways_and_both_orders() -> None:
    assert len(RELATIONS) >= 52 and len({relation.name for relation in RELATIONS}) == len(RELATIONS)
    for relation in RELATIONS:
        frames = [frame for frame, _, _ in expressing(relation)]
        assert len(frames) >= 25
        assert {frame.head_first for frame in frames} == {True, False}
        assert all(counter.startswith("the ") and counter.endswith(" of") for counter in relation.counter)


def test_frames_read_as_written() -> None:
    born = next(relation for relation in RELATIONS if relation.name == "born_in")
    frames = [frame for frame, _, _ in expressing(born)]
    assert Frame("active", True, "", " was born in ") in frames
    assert Frame("fronted", False, "a native of ", ", ", "", True) in frames
    assert Frame("bracket", True, "", " (birthplace: ", ")", True) in frames


def test_the_maker_never_coins_a_word_twice_or_a_real_one() -> None:
    maker = WordMaker(numpy_generator(0, "words"), reserved={"bal", "kom"})
    words = maker.words(3_000, syllables=1) + maker.words(3_000, syllables=1)
    codes = maker.codes(9_000, letters=3)
    assert len(set(words)) == 6_000 and not {"bal", "kom"} & set(words)
    assert len(set(codes)) == 9_000 and all(code.isupper() for code in codes)


def test_zipf_cdf_by_hand() -> None:
    assert zipf_cdf(3).tolist() == pytest.approx([6 / 11, 9 / 11, 1.0])


@settings(max_examples=5)
@given(
    relations=st.integers(2, len(RELATIONS) + 1),
    noise=st.floats(0, 1),
    na_share=st.floats(0, 1),
    bag_size=st.floats(1, 100),
    styles=st.integers(1, 8),
    dev=st.floats(0, 0.5),
    test=st.floats(0, 1),
    seed=st.integers(0, 2**63),
)
def test_any_world_is_consistent(
    relations: int,
    noise: float,
    na_share: float,
    bag_size: float,
    styles: int,
    dev: float,
    test: float,
    seed: int,
) -> None:
    config = WorldConfig(
        sentences=1_000, relations=relations, noise=noise, na_share=na_share, bag_size=bag_size,
        mean_length=14, vocabulary=200, styles=styles, dev=dev, test=test, seed=seed,
    )  # fmt: skip
    world = World(config)
    instances = list(world.instances())
    assert sum(split < 2 for split, _ in instances) == 1_000
    assert sum(split == 2 for split, _ in instances) == pytest.approx(1_000 * test, abs=2)
    home: dict[frozenset[str], tuple[int, str]] = {}
    for split, instance in instances:
        place = home.setdefault(frozenset(pair_of(instance)), (split, instance.relation))
        assert place == (split, instance.relation) and instance.head.id != instance.tail.id
        assert instance.text[instance.head.start : instance.head.end] == instance.head.name
        assert instance.text[instance.tail.start : instance.tail.end] == instance.tail.name
        assert instance.head.end <= instance.tail.start or instance.tail.end <= instance.head.start
        assert instance.relation in world.relations and instance.source in world.styles
