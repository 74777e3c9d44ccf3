"""`python -m tests.golden` runs all cases and records their hashes for this machine in `golden.json`.

With `--changed`, results have changed on purpose: the expected numbers are renewed, too, and the hashes of other
machines, which are no longer true, are dropped. `--changed CASE …` does so for some cases and leaves others alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.records import (
    FILE,
    Golden,
    Hashes,
    Numbers,
    carry_out,
    differences,
    hashes,
    numbers,
    read_golden,
    signature,
    write_golden,
)


def main(changed: bool, only: Sequence[str] = ()) -> int:
    """Record every case, or some; returns the exit code."""
    before: Golden = read_golden() if FILE.exists() else {"expected": {}, "hashes": {}}
    found: dict[str, Hashes] = {}
    expected: dict[str, Numbers] = {}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        os.environ["FEDREL_CACHE"] = str(folder / "cache")
        os.environ.pop("FEDREL_DATA", None)
        (folder / "inputs").mkdir()
        old = before["hashes"].get(signature(), {})
        for case in only or CASES:
            out = carry_out(case, "local", folder / "inputs", folder / case)
            found[case] = hashes(out)
            expected[case] = numbers(out)
            if not changed and case in before["expected"]:
                said = differences(expected[case], before["expected"][case])
                expected[case] = before["expected"][case]
                wrong += bool(said)
                print(*(f"{case}: {one}" for one in said), sep="\n", end="\n" if said else "")
            same = old.get(case, found[case]).items()
            parts = [part for part, value in found[case].items() if (part, value) not in same]
            print(f"{case}: {'changed: ' + ', '.join(parts) if parts else 'recorded'}", flush=True)
    if wrong:
        print(
            f"{wrong} cases are not as expected; nothing is written. Is that on purpose? Then add --changed"
        )
        return 1
    stale = set(found) if changed else set()
    recorded = {
        machine: {case: one for case, one in own.items() if case not in stale}
        for machine, own in before["hashes"].items()
    }
    recorded[signature()] = {**(old if only else {}), **found}
    kept = {machine: own for machine, own in recorded.items() if own}
    write_golden({"expected": {**(before["expected"] if only else {}), **expected}, "hashes": kept})
    print(f"{len(found)} cases are recorded for: {signature()}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--changed", action="store_true", help="results have changed on purpose: renew them")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these; else all")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.cases) - set(CASES)):
        parser.error(f"no such case: {', '.join(unknown)}")
    sys.exit(main(asked.changed, asked.cases))
