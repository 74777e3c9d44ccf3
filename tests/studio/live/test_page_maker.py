"""What all pages share: events and remarks.

Events: one look at the disk for all who listen, nothing piles up, nothing goes on when nobody listens. Notes and
tags are kept in one file; nothing else in the folder changes.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from fedrel.errors import UserError
from fedrel.studio.live.page_maker import Feed, Feeds, Remark, Remarks, TooManyError


def parsed(chunk: bytes) -> dict:
    return json.loads(chunk.removeprefix(b"data: "))


def test_ten_listeners_cost_one_look():
    looks = 0

    def look():
        nonlocal looks
        looks += 1
        return {"parts": {"n": looks}}

    async def listen():
        feed = Feed(look, every=0.01)
        streams = [feed.events() for _ in range(10)]
        for stream in streams:
            assert await anext(stream) == b"retry: 2000\n\n"
        first = [parsed(await anext(stream)) for stream in streams]
        seen = looks
        for stream in streams:
            await stream.aclose()
        assert feed.listeners == 0
        await asyncio.sleep(0.1)
        return first, seen

    first, seen = asyncio.run(listen())
    assert all(one["parts"]["n"] >= 1 for one in first)
    assert looks <= seen + 1, "nobody listens any more"
    assert seen <= 10


def test_a_slow_listener_gets_what_it_missed_in_one_event():
    left = [{"rows": {"a": 1}}, None, {"rows": {"b": 2}}, {"rows": {"a": 3}}, None]

    async def listen():
        feed = Feed(lambda: left.pop(0) if left else None, every=0.001)
        stream = feed.events()
        await anext(stream)
        while left:
            await asyncio.sleep(0.01)
        found = parsed(await anext(stream))
        await stream.aclose()
        return found

    assert asyncio.run(listen()) == {"rows": {"a": 3, "b": 2}}


def test_what_goes_wrong_is_left_to_the_page():
    def look():
        raise UserError("metrics.jsonl is broken")

    async def listen():
        stream = Feed(look, every=0.001).events()
        await anext(stream)
        found = parsed(await anext(stream))
        await stream.aclose()
        return found

    assert asyncio.run(listen()) == {"reload": True}


def test_there_is_a_limit():
    async def listen():
        feeds = Feeds(most=1)
        stream = feeds.feed("a", lambda: lambda: None, 1).events()
        await anext(stream)
        with pytest.raises(TooManyError):
            feeds.feed("b", lambda: lambda: None, 1)
        await stream.aclose()
        feeds.feed("b", lambda: lambda: None, 1)

    asyncio.run(listen())


def test_a_remark_is_kept_changed_and_removed(tmp_path):
    remarks = Remarks(tmp_path)
    assert remarks.of("a") == Remark()
    remarks.keep("a", " why ", ["good", " for  the paper ", "good", ""])
    assert Remarks(tmp_path).of("a") == Remark(note="why", tags=["good", "for the paper"])
    remarks.keep("b", "x", [])
    remarks.keep("a", "", [])
    assert set(Remarks(tmp_path).all()) == {"b"}
    assert [path.name for path in tmp_path.iterdir()] == ["studio.json"]


def test_limits(tmp_path):
    remarks = Remarks(tmp_path)
    with pytest.raises(UserError, match="characters"):
        remarks.keep("a", "x" * 4001, [])
    with pytest.raises(UserError, match="tags"):
        remarks.keep("a", "", ["x" * 41])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_ours_is_not_overwritten(tmp_path):
    (tmp_path / "studio.json").write_text("[1]")
    remarks = Remarks(tmp_path)
    assert remarks.all() == {}
    with pytest.raises(UserError):
        remarks.keep("a", "x", [])
    assert (tmp_path / "studio.json").read_text() == "[1]"
