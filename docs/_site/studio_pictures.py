"""Makes the pictures of docs/studio.md: trains a small comparison, opens the studio on it, photographs its pages.

    python docs/_site/studio_pictures.py [--runs FOLDER]

It needs Chromium and takes a minute or two. `--runs` takes a folder that has the runs already.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[1] / "assets"
FEDREL = [sys.executable, "-m", "fedrel"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
ROUNDS = 60
WIDE, PHONE = {"width": 1200, "height": 860}, {"width": 390, "height": 780}
TEXT = "Ada Quill, who was born in Troutmere, works for Halden Works. Bo Marrow met Ada Quill in Troutmere."
NAMES = ["Ada Quill", "Troutmere", "Halden Works", "Bo Marrow"]


def main() -> None:
    """Train, serve, photograph."""
    parser = argparse.ArgumentParser(description="Make the pictures of docs/studio.md.")
    parser.add_argument("--runs", type=Path, help="a folder that has the runs already")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedrel-pictures-") as name:
        root = Path(name) / "runs"
        if asked.runs:
            shutil.copytree(asked.runs, root)
        else:
            train(root)
        lock = cut(root / "overnight")
        with subprocess.Popen(
            [*FEDREL, "studio", root, "--port", "0"], stdout=subprocess.PIPE, text=True
        ) as studio:
            assert studio.stdout is not None
            url = studio.stdout.readline().split(" at ")[1].strip()
            try:
                photograph(url)
            finally:
                studio.terminate()
                os.close(lock)


def train(root: Path) -> None:
    """A comparison, and a longer run."""
    few = ["--methods", "none,one,lazy-mil", "--seeds", "2", "--set", "training.rounds=15"]
    subprocess.run([*FEDREL, "compare", "demo", *few, "--out", root / "denoising", "-q"], check=True)
    long = ["--set", f"training.rounds={ROUNDS}", "--set", "evaluation.every=1", "--set", "seed=7"]
    subprocess.run([*FEDREL, "run", "demo", *long, "--out", root / "overnight", "-q"], check=True)


def cut(run: Path) -> int:
    """Make a finished run look as it did while it was trained; returns the lock that it held then."""
    for name in ("result.json", "report.html", "pr_curve.json", "case_study.json", "label_counts.json"):
        (run / name).unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[: ROUNDS * 2 // 3]))
    state = json.loads((run / "state.json").read_text())
    (run / "state.json").write_text(json.dumps(state | {"phase": "training"}))
    handle = os.open(run, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def photograph(url: str) -> None:
    """All pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        picture(browser, f"{url}run?id=overnight", "studio-run", scroll=".banner")
        picture(browser, f"{url}run?id=overnight", "studio-run-dark", scheme="dark", scroll="#convergence")
        picture(browser, url, "studio-runs")
        picture(browser, url, "studio-runs-phone", size=PHONE)
        picture(browser, f"{url}compare?id=denoising", "studio-compare", scroll="#convergence")
        picture(browser, f"{url}compare?id=denoising", "studio-compare-phone", size=PHONE, scheme="dark")
        tried(browser, f"{url}try?id=denoising/lazy-mil/seed-1")
        browser.close()


def picture(
    browser: Browser, url: str, name: str, *, size: dict = WIDE, scheme: str = "light", scroll: str = ""
) -> None:
    """One page, from its top or from one of its sections on."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(90_000)
    page.goto(url)
    page.wait_for_timeout(1500)
    if scroll:
        page.evaluate("(place) => document.querySelector(place).scrollIntoView()", scroll)
        page.wait_for_timeout(300)
    save(page.screenshot(), name)
    context.close()


def tried(browser: Browser, url: str) -> None:
    """What is found in a text."""
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
    page = context.new_page()
    page.goto(url)
    page.fill("#text", TEXT)
    page.fill("#names", "\n".join(NAMES))
    page.click("text=Find relations")
    page.wait_for_selector("#save", timeout=120_000)
    page.evaluate("document.querySelector('#found').scrollIntoView()")
    page.wait_for_timeout(300)
    save(page.screenshot(), "studio-try")
    context.close()


def save(png: bytes, name: str) -> None:
    """With 256 colours, which these pages do not exceed by much: a third of the bytes."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = PICTURES / f"{name}.png"
    image.save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
