"""One Chromium for all tests of this folder, and a studio that a test starts as a user would."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedrel.deployment.flower_programs import end_with_parent

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ADDRESS = re.compile(r" at (http://\S+)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser: the tests of this folder run one after the other."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    pytest.importorskip("uvicorn", reason="needs pip install 'fedrel[studio]'")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip("needs Chromium: none is installed")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=executable, args=FLAGS)
        yield found
        found.close()


class Studio:
    """A studio in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "fedrel", "studio", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it only sets a signal
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = ADDRESS.search(said)
        assert found, said + self.process.stdout.read()
        self.url = found[1].rstrip("/")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def studio() -> Iterator[Callable[..., Studio]]:
    """Starts a studio on a folder."""
    started: list[Studio] = []

    def start(folder: Path, *options: str) -> Studio:
        started.append(Studio(folder, *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page that fails the test on any script error, and on any request to another host."""
    contexts, wrong = [], []

    def opened(url: str, **options: object) -> Page:
        own = url.split("/")[2]
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)  # a busy machine takes its time
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda one: _check(one.url, own, wrong))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait for a condition in the page. Playwright's own way needs `eval`, which the pages forbid."""
    from playwright.sync_api import Error

    end, found = time.monotonic() + seconds, False
    while not found:
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(50)
        with suppress(Error):  # the page is being loaded again
            found = page.evaluate(condition)


def _check(url: str, own: str, wrong: list[str]) -> None:
    if not url.startswith((f"http://{own}/", "data:", "blob:")):
        wrong.append(f"a request left: {url}")
