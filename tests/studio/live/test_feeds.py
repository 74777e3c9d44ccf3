"""Events: one look at the disk for all who listen, nothing piles up, nothing goes on when nobody listens."""

from __future__ import annotations

import asyncio
import json
from threading import Lock

import pytest

from fedrel.errors import UserError
from fedrel.studio.live.feeds import Feed, Feeds, TooManyError
from fedrel.studio.live.remarks import Remarks
from fedrel.studio.live.run_index import RunIndex
from fedrel.studio.live.watching import ListWatch, RunWatch
from tests.studio.conftest import write_run
from tests.studio.live.conftest import add_round, trained_in, write_state, write_unfinished


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


def test_the_list_tells_what_changed(tmp_path):
    write_run(tmp_path / "first")
    index, remarks = RunIndex(tmp_path), Remarks(tmp_path)
    index.scan()
    watch = ListWatch(index, remarks, Lock())
    assert watch() is None
    write_unfinished(tmp_path / "<b>second")
    remarks.keep("first", "", ["good"])
    event = watch()
    assert set(event["rows"]) == {"first", "<b>second"}
    assert "&lt;b&gt;second" in event["rows"]["<b>second"] and "<b>" not in event["rows"]["<b>second"]
    assert "good" in event["rows"]["first"]
    assert "2 runs: 1 finished and 1 stopped." in event["parts"]["lead"]


def test_a_run_tells_of_its_new_rounds_then_of_its_end(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_state(run, "training", rounds=5)
    index = RunIndex(tmp_path)
    with trained_in(run):
        index.scan()
        watch = RunWatch(index, "run", Lock())
        assert watch()["plots"] == {}
        assert watch() is None
        for number in (1, 2):
            add_round(run, number, number / 10)
        event = watch()
        (line,) = event["plots"]["AUC on the development set"]["data"]
        assert (line["x"], line["y"]) == ([1, 2], [0.1, 0.2])
        assert event["plots"]["AUC on the development set"]["layout"]["xaxis"]["range"] == [0.5, 5.5]
        assert "2 of 5" in event["parts"]["tiles"] and "round 2 of 5" in event["parts"]["banner"]
        assert {"Training loss", "Sites, round by round", "Sent by the sites"} <= set(event["plots"])
        assert watch() is None
    assert "stopped, round 2 of 5" in watch()["parts"]["banner"]
    write_run(tmp_path / "other")
    for name in ("result.json",):
        (tmp_path / "other" / name).rename(run / name)
    write_state(run, "finished", rounds=5)
    assert watch() == {"reload": True}
