"""How long does a phase take between real sites, with a runner that stays at each site and without one?

    python benchmarks/resident.py [--rounds 5] [--method lazy-mil]

Three sites, a coordinator and Flower's own programs on this machine's loopback, with TLS and registered keys, run
the same experiment in two ways, one after the other: as `fedrel site start` does it, and the way it was before, in
which Flower starts a program for each message that imports torch and opens the site's data, and looks for work at
its own intervals. The sentences are few, so that what is measured is all that surrounds the training. The first
round is left out: in it, runners open their data and kernels may be compiled. Both ways must end with the same
weights to the bit. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the federation on loopback is that of the tests

from tests.federation_e2e.conftest import copied, experiment
from tests.federation_e2e.testbed import NAMES, PATIENCE, Testbed, same

from fedrel.config.schema import Config
from fedrel.deployment.client_guard import CLIENT, STARTER
from fedrel.deployment.flower_programs import Program, flower_program
from fedrel.deployment.supernode import supernode_program
from fedrel.runs.prepare import prepare

A_PROCESS_FOR_EACH_MESSAGE = {
    STARTER: "from flwr.supercore.cli import flower_superexec\n\nflower_superexec()\n",
    CLIENT: """\
from pathlib import Path
from fedrel.deployment import client_guard
from fedrel.deployment.site_runner import SiteHost
from fedrel.federation.flower.client import client_app

app = client_app(lambda context: SiteHost(Path(str(context.node_config["site"]))))
client_guard._only_ours = lambda *_, **__: lambda *_: app
client_guard.main()
""",
}


class Before(Testbed):
    """A federation in which nothing stays."""

    def start_site(self, name: str) -> None:
        """The supernode as Flower has it, with programs that answer by themselves."""
        program = supernode_program(self.site(name))
        folder = Path(program.environment["PATH"])
        for file, code in A_PROCESS_FOR_EACH_MESSAGE.items():
            first, second, *_ = (folder / file).read_text().splitlines()
            (folder / file).write_text(f"{first}\n{second}\n{code}")
        flags = list(program.command)[3:]  # after `python -m fedrel.deployment.supernode`
        self.run(name, Program([flower_program("flower-supernode"), *flags], program.environment))


def seconds_of_rounds(bed: Testbed, config: Config, out: Path) -> list[float]:
    """Run the experiment; the seconds of each round but the first."""
    bed.move_ports()
    with bed:
        bed.start()
        bed.finish(config, out)
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["seconds"] for line in lines][1:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="A phase between real sites, with and without resident runners."
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each way, the first not counted (default: 5)"
    )
    parser.add_argument("--method", default="lazy-mil", help="it has two phases a round (default: lazy-mil)")
    asked = parser.parse_args()
    phases = 2 if asked.method == "lazy-mil" else 1
    config = experiment(asked.method, training__rounds=asked.rounds, engine__deadline=PATIENCE)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fedrel-resident-") as name:
        folder = Path(name)
        made = Testbed(folder / "made")
        made.make(config, prepare(config))
        for way, kind in (("resident", Testbed), ("before", Before)):
            bed = kind(copied(made.folder, folder / way))
            rounds = seconds_of_rounds(bed, config, folder / f"{way}-run")
            found[way] = [round(seconds / phases, 3) for seconds in rounds]
            print(f"{way:10}{statistics.median(found[way]):8.2f} s a phase {found[way]}", flush=True)
        same(folder / "resident-run", folder / "before-run")
    medians = {way: round(statistics.median(seconds), 3) for way, seconds in found.items()}
    ratio = round(medians["resident"] / medians["before"], 3)
    print(json.dumps({"sites": len(NAMES), "phase_seconds": medians, "each": found, "ratio": ratio}))


if __name__ == "__main__":
    main()
