"""What does the studio cost: how soon does a large folder open, and how much slower is a run that is watched?

    python benchmarks/studio.py [--runs 1000] [--rounds 500] [--turns 3]

A folder of made-up runs, one in ten of them not finished, is opened by a new `fedrel studio`; measured are the
seconds from the first request to the last byte of its first page, and the most memory that its process ever had.
Then a run of the built-in world is trained with nobody watching and with ten browsers, in turns. A browser is a
connection that reads the run's events and throws them away: what it draws, it draws on the machine that it runs on.
The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BROWSERS = 10
SETTINGS = ("training.rounds=60", "evaluation.every=1", "engine.kind=local")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the studio costs.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--turns", type=int, default=3, help="how often a run is trained, watched and not")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedrel-studio-") as name:
        folder = Path(name)
        found = opening(folder / "many", asked.runs, asked.rounds) if asked.runs else {}
        found |= watching(folder / "watched", asked.turns) if asked.turns else {}
    print(json.dumps(found))


def opening(folder: Path, runs: int, rounds: int) -> dict[str, float]:
    """Open a large folder."""
    size = write_runs(folder, runs, rounds)
    with studio(folder) as (url, process):
        seconds_of(f"{url}static/style.css")  # it has started
        before = processor_seconds(process.pid)
        first = seconds_of(url)
        computed = processor_seconds(process.pid) - before
        again = statistics.median(seconds_of(url) for _ in range(3))
        peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1000
    print(
        f"{runs:,} runs, {size / 1e6:,.0f} MB: first page {first:.2f} s, again {again:.2f} s, {peak:.0f} MB"
    )
    return {
        "runs": runs,
        "rounds": rounds,
        "folder_mb": round(size / 1e6),
        "first_page_seconds": round(first, 3),
        "first_page_processor_seconds": round(computed, 3),
        "again_seconds": round(again, 3),
        "peak_mb": round(peak, 1),
    }


def watching(folder: Path, turns: int) -> dict[str, object]:
    """Train the same run with and without browsers, in turns; the first turn compiles and does not count."""
    seconds: dict[str, list[float]] = {"alone": [], "watched": []}
    events = 0
    for turn in range(turns + 1):
        for how in ("alone", "watched") if turn % 2 else ("watched", "alone"):
            own = folder / f"{how}-{turn}"
            own.mkdir(parents=True)
            if how == "alone":
                took = train(own / "run")
            else:
                with studio(own) as (url, _), browsers(url) as read:
                    took = train(own / "run")
                events = sum(read)
            if turn:
                seconds[how].append(took)
            print(f"turn {turn}, {how}: {took:.2f} s of rounds", flush=True)
    alone, watched = (statistics.median(seconds[how]) for how in ("alone", "watched"))
    return {
        "browsers": BROWSERS,
        "settings": list(SETTINGS),
        "seconds": {how: [round(one, 3) for one in own] for how, own in seconds.items()},
        "events_read": events,
        "slower_percent": round(100 * (watched / alone - 1), 2),
    }


def train(out: Path) -> float:
    """The seconds that the rounds of a run took."""
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    subprocess.run(
        [sys.executable, "-m", "fedrel", "run", "demo", "--out", str(out), "-q", *settings], check=True
    )
    return float(json.loads((out / "result.json").read_text())["seconds"])


@contextmanager
def studio(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A studio in a process of its own."""
    command = [sys.executable, "-m", "fedrel", "studio", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].strip()
        try:
            yield url, process
        finally:
            process.terminate()


@contextmanager
def browsers(url: str) -> Iterator[list[int]]:
    """Ten connections that read the events of the run as soon as there is one."""
    over, read = threading.Event(), [0] * BROWSERS

    def listen(number: int) -> None:
        while not over.is_set():
            try:
                with urllib.request.urlopen(f"{url}run/events?id=run", timeout=30) as stream:
                    for line in stream:
                        read[number] += line.startswith(b"data:")
                        if over.is_set():
                            return
            except OSError:  # there is no such run yet, or the studio has ended
                time.sleep(0.5)

    threads = [threading.Thread(target=listen, args=(number,), daemon=True) for number in range(BROWSERS)]
    for thread in threads:
        thread.start()
    try:
        yield read
    finally:
        over.set()


def seconds_of(url: str) -> float:
    """How long a page takes, to its last byte."""
    started = time.monotonic()
    with urllib.request.urlopen(url) as page:
        page.read()
    return time.monotonic() - started


def processor_seconds(pid: int) -> float:
    """What a process has computed so far: other work on the machine changes it little."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_runs(folder: Path, runs: int, rounds: int) -> int:
    """Made-up runs; every tenth is not finished. Returns their bytes."""
    lines = [json.dumps(line(number, rounds)) + "\n" for number in range(1, rounds + 1)]
    metrics, size = "".join(lines), 0
    for number in range(runs):
        own = folder / f"group-{number // 50}" / f"run-{number}"
        own.mkdir(parents=True)
        finished = number % 10 > 0
        state = {"phase": "finished" if finished else "training", "method": "lazy-mil", "seed": number}
        (own / "state.json").write_text(json.dumps(state | {"rounds": rounds, "metric": "auc"}))
        (own / "config.toml").write_text(f'method = "lazy-mil"\nseed = {number}\n')
        (own / "metrics.jsonl").write_text(metrics)
        size += len(metrics)
        if finished:
            result = {"method": "lazy-mil", "seed": number, "metrics": {"auc": 0.4, "p_mean": 0.6}}
            result |= {"rounds": rounds, "seconds": 900.0, "bytes": {"up": 10**9, "down": 2 * 10**9}}
            (own / "result.json").write_text(json.dumps(result))
    return size


def line(number: int, rounds: int) -> dict[str, object]:
    """A round of 20 active sites."""
    sites = [(number * 7 + place * 13) % 100 for place in range(20)]
    return {
        "round": number,
        "loss": 2.0 / number,
        "dev": {"auc": number / rounds / 2, "max_f1": 0.4},
        "bytes": {"up": 2_000_000, "down": 4_000_000, "by_kind": {"Update": {"up": 2_000_000, "down": 0}}},
        "seconds": 1.8,
        "active": sites,
        "examples": 12_345,
        "refused": [],
        "at_sites": {str(site): {"loss": 0.61234, "up": 100_000} for site in sites},
    }


if __name__ == "__main__":
    main()
