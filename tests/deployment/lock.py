"""Write the hash-pinned requirements that `fedrel federation init` puts into folders, from constraints.txt.

    python -m tests.deployment.lock

It lists every package that `fedrel[flower,privacy]` needs but torch, whose build depends on the machine, with the
SHA-256 of its wheels for Linux as the configured package index has them. A test compares it with constraints.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "src" / "fedrel" / "deployment" / "templates" / "requirements.txt"
EXTRAS = ("flower", "privacy")
LEFT_OUT = {"torch", "setuptools"}  # torch brings setuptools
_WHEEL = re.compile(
    r"(?:cp311-cp311|cp3\d+-abi3|py2\.py3-none|py3-none)-(?:any|manylinux\S*_(?:x86_64|aarch64))\S*\.whl$"
)

_LINK = re.compile(r"sha256=([0-9a-f]{64})[^>]*>([^<]+)<")


def pinned() -> dict[str, str]:
    """The versions in constraints.txt, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version.strip() for name, version in found}


def needed(*extras: str) -> set[str]:
    """Every package that is installed for fedrel with these extras, by default with those of a real site."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    seen: set[tuple[str, tuple[str, ...]]] = set()

    def walk(lines: Iterable[str], extras: tuple[str, ...]) -> None:
        for one in map(Requirement, lines):
            wanted = one.marker is None or any(
                one.marker.evaluate({"extra": name}) for name in extras or ("",)
            )
            key = (canonicalize_name(one.name), tuple(sorted(one.extras)))
            if wanted and key not in seen:
                seen.add(key)
                walk(distribution(one.name).requires or [], key[1])

    wanted = (project["optional-dependencies"][extra] for extra in extras or EXTRAS)
    walk([*project["dependencies"], *(line for lines in wanted for line in lines)], ())
    return {name for name, _ in seen}


def hashes(index: str, name: str, version: str) -> list[str]:
    """The SHA-256 of a version's wheels for Linux; of its source, if it has none."""
    headers = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"}
    with urllib.request.urlopen(urllib.request.Request(f"{index}/{name}/", headers=headers)) as answer:
        page = answer.read().decode()
    if page.startswith("{"):
        files = {one["filename"]: one["hashes"]["sha256"] for one in json.loads(page)["files"]}
    else:  # an index that has only pages
        files = {name: digest for digest, name in _LINK.findall(page)}
    own = [one for one in files if re.search(rf"-{re.escape(version)}[-.]", one)]
    chosen = [one for one in own if _WHEEL.search(one)] or [one for one in own if one.endswith(".tar.gz")]
    if not chosen:
        raise SystemExit(f"the index has no {name} {version}")
    return sorted({files[one] for one in chosen})


def main() -> None:
    """Ask the index for all of them, and write the file."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = (asked.stdout.strip() or "https://pypi.org/simple").rstrip("/")
    wanted = needed() - LEFT_OUT
    versions = {name: version for name, version in pinned().items() if name in wanted}
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(versions, pool.map(lambda one: hashes(index, *one), versions.items()), strict=True))
    what = f"fedrel[{','.join(EXTRAS)}]"
    lines = [f"# What {what} needs, by SHA-256; torch comes first, by itself. Made from constraints.txt."]
    for name, version in sorted(versions.items()):
        lines.append(
            " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in found[name])])
        )
    LOCK.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
