"""A round of FedAvg with PCNN at NYT10's shape: ours, pfl, Flower's simulation on Ray and a plain loop, in one run.

    make peers                                   # sets up the peers' environment, then runs this
    python benchmarks/peers/run.py [--python benchmarks/peers/.venv/bin/python] [--sentences 4700]

Ten sites are active, with 4,700 sentences each, E=3, B=32: 141,000 sentences trained. The text has NYT10's lengths
(40 words on average, 120 at most) and Zipf's words; the model 114,000 words of 50 numbers, 230 filters and 53
relations. Ours is what `fedrel run` does in a round, with its default engine on this machine's cores. The others
run the network of `published.py`, as their users write it, on batches that were padded before the clock starts:
pfl in two processes of one thread, Flower in two of Ray's, the plain loop in one process with two threads.

All start from the same weights and take the same sentences in the same order. A small round without dropout comes
first, for warming up (kernels are compiled, Ray and all processes are started), and the run fails if the weights
that any of them comes to differ from ours by more than rounding can explain. In the round that is timed, with
dropout, which each draws in its own way, the mean losses must agree. Ours takes a turn before each of the others;
its time is the median. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from exchange import CHECK, TIMED, Settings, SiteText, initial, write_result

from fedrel.config.schema import Config
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.coordinator import Engine
from fedrel.runs.engines import engine
from fedrel.runs.prepare import Preparation, prepare
from fedrel.runs.train import Session
from fedrel.seeding import numpy_generator
from published import Published, pad

HERE = Path(__file__).parent
SITES, EPOCHS, BATCH = 10, 3, 32
VOCABULARY, WORD, RELATIONS = 114_000, 50, 53
ZIPF = 1.18  # 1,280 tokens then have about 580 distinct words
MEAN_LENGTH, LONGEST = 40, 120
DROPOUT, CHECKED = 0.5, 96  # CHECKED: sentences a site in the small round
WEIGHT_TOLERANCE, LOSS_TOLERANCE = (
    2e-3,
    0.02,
)  # of any weight (a near-tie moves one filter); a share of the loss
ASKED = 35.0
NEVER = 10**6


def write_text(folder: Path, sentences: int) -> None:
    """Sentences of invented words, each about a pair of its own, as JSON lines; and the words' vectors."""
    random = numpy_generator(0, "peers")
    known = VOCABULARY - 2  # beside the gap and the unknown word
    if not (vectors := folder / "vectors.txt").exists():
        drawn = random.normal(0, WORD**-0.5, (known, WORD))
        lines = (f"w{word} " + " ".join(f"{x:.4f}" for x in row) for word, row in enumerate(drawn.tolist()))
        vectors.write_text("\n".join(lines) + "\n")
        names = ["NA", *(f"r{number}" for number in range(1, RELATIONS))]
        (folder / "relations.json").write_text(json.dumps({name: at for at, name in enumerate(names)}))
    odds = 1 / (np.arange(known) + 2.7) ** ZIPF
    for split, count in (("train", SITES * sentences), ("dev", RELATIONS), ("test", RELATIONS)):
        lengths = np.clip(random.gamma(6, MEAN_LENGTH / 6, count).round(), 5, LONGEST).astype(np.int64)
        words = random.choice(known, lengths.sum(), p=odds / odds.sum())
        relations = random.integers(RELATIONS, size=count)
        with (folder / f"{split}-{sentences}.jsonl").open("w") as file:
            for number, own in enumerate(np.split(words, lengths.cumsum()[:-1])):
                head, tail, sign = random.permutation(len(own))[:3].tolist()
                own[sign] = 1000 + relations[number]  # a word that tells the relation
                tokens = [f"w{word}" for word in own.tolist()]
                line = {
                    "token": tokens,
                    "h": {"id": f"{split}h{number}", "name": tokens[head], "pos": [head, head + 1]},
                    "t": {"id": f"{split}t{number}", "name": tokens[tail], "pos": [tail, tail + 1]},
                    "relation": f"r{relations[number]}" if relations[number] else "NA",
                }
                file.write(json.dumps(line) + "\n")


def experiment(folder: Path, sentences: int, dropout: float) -> Config:
    """FedAvg on those files, all sites active."""
    return Config.model_validate(
        {
            "method": "fedavg",
            "data": {
                "corpus": "files",
                "root": folder,
                "relations": "relations.json",
                **{split: [f"{split}-{sentences}.jsonl"] for split in ("train", "dev", "test")},
            },
            "extractor": {
                "kind": "pcnn",
                "vectors": str(folder / "vectors.txt"),
                "word_dimension": WORD,
                "max_length": LONGEST,
                "dropout": dropout,
            },
            "partition": {"sites": SITES},
            "training": {"rounds": NEVER, "fraction": 1.0, "epochs": EPOCHS, "batch_size": BATCH},
            "evaluation": {"every": NEVER},
        }
    )


def export(part: Path, config: Config, ready: Preparation, weights: Mapping[str, Any]) -> None:
    """Leave a round's data for the others."""
    part.mkdir()
    training = config.training
    dropout = config.extractor.dropout  # type: ignore[attr-defined]
    Settings(SITES, BATCH, training.learning_rate_in(1), training.weight_decay, dropout).write(part)
    np.savez(part / "initial.npz", **weights)
    for site in range(SITES):
        bags = ready.site_data.bags(ready.site_data.partition.rows(site))
        batch = ready.site_data.inputs.batch(bags)
        shuffle = numpy_generator(config.seed, "shuffle", 1, site)
        orders = np.stack([shuffle.permutation(len(bags)) for _ in range(EPOCHS)])
        SiteText((*pad(batch, LONGEST), batch.labels), torch.from_numpy(orders)).write(part, site)


class Ours:
    """Our own rounds of one part, each from the initial weights."""

    def __init__(self, config: Config, ready: Preparation, carrier: Engine) -> None:
        self._config, self._ready, self._carrier = config, ready, carrier
        self.weights: Mapping[str, Any] = Session(config, ready, carrier, None).checkpoint().weights
        self.seconds: list[float] = []

    def round(self) -> tuple[Mapping[str, Any], float]:
        """One round: the mean weights, and the mean loss."""
        session = Session(self._config, self._ready, self._carrier, None)
        begin = time.perf_counter()
        line = session.next_round()
        self.seconds.append(time.perf_counter() - begin)
        return session.checkpoint().weights, line.loss


def plain_loop(part: Path) -> None:
    """The published-style loop over all sites, in this process with two threads."""
    settings, start = Settings.read(part), initial(part)
    texts = [SiteText.read(part, site) for site in range(SITES)]
    net = Published(start, settings.dropout)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    begin = time.perf_counter()
    total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    losses = []
    for text in texts:
        net.load(start)
        losses.append(text.fit(net, settings))
        with torch.no_grad():
            for name, tensor in net.as_ours().items():
                total[name] += tensor / SITES
    seconds = time.perf_counter() - begin
    torch.set_num_threads(threads)
    write_result(part, "plain", total, float(np.mean(losses)), seconds, processes=1)


def peer(python: Path, script: str, folder: Path) -> None:
    """Both rounds by a peer, in its own environment."""
    launcher = [python.parent / "torchrun", "--standalone", "--nproc-per-node", str(os.cpu_count() or 1)]
    command = [*(launcher if script == "with_pfl.py" else [python]), HERE / script, folder]
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent))),
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        list(map(str, command)), env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")


def compare(part: Path, name: str, weights: Mapping[str, Any], loss: float) -> dict[str, Any]:
    """How far a peer's round is from ours."""
    about: dict[str, Any] = json.loads((part / f"{name}.json").read_text())
    with np.load(part / f"{name}.npz") as theirs:
        apart = max(float(np.abs(theirs[key] - array).max()) for key, array in weights.items())
    return about | {"weights_apart": apart, "loss_apart": abs(about["loss"] - loss) / loss}


def measure(folder: Path, python: Path, sentences: int) -> dict[str, Any]:
    """Everything, in the order that the module's docstring tells."""
    found: dict[str, dict[str, Any]] = {}
    rounds = {}
    for name, count, dropout in ((CHECK, CHECKED, 0.0), (TIMED, sentences, DROPOUT)):
        write_text(folder, count)
        rounds[name] = experiment(folder, count, dropout), count
    with extractor_kind("pcnn").compiling("none"):  # in other processes, as `fedrel run` does
        ready = {name: prepare(config) for name, (config, _) in rounds.items()}
    with (
        engine(rounds[CHECK][0], ready[CHECK], folder / "sites") as small,
        engine(rounds[TIMED][0], ready[TIMED], folder / "sites") as large,
    ):
        ours = {CHECK: Ours(rounds[CHECK][0], ready[CHECK], small)}
        ours[TIMED] = Ours(rounds[TIMED][0], ready[TIMED], large)
        for name, (config, _) in rounds.items():
            export(folder / name, config, ready[name], ours[name].weights)
        checked = ours[CHECK].round()
        ours[TIMED].round()
        ours[TIMED].seconds.clear()  # that one was for warming up
        for other in ("pfl", "flower-ray", "plain"):
            timed = ours[TIMED].round()
            print(f"ours: {ours[TIMED].seconds[-1]:.2f} s, loss {timed[1]:.4f}", flush=True)
            if other == "plain":
                plain_loop(folder / CHECK)
                plain_loop(folder / TIMED)
            else:
                peer(python, f"with_{other.partition('-')[0]}.py", folder)
            small_, found[other] = (
                compare(folder / CHECK, other, *checked),
                compare(folder / TIMED, other, *timed),
            )
            found[other]["weights_apart"] = small_["weights_apart"]
            print(
                f"{other}: {found[other]['seconds']:.1f} s, loss {found[other]['loss']:.4f}; in the small round "
                f"weights {small_['weights_apart']:.1e} and loss {small_['loss_apart']:.1e} from ours",
                flush=True,
            )
    seconds = statistics.median(ours[TIMED].seconds)
    result: dict[str, Any] = {"ours_seconds": round(seconds, 3)}
    for other, about in found.items():
        key = other.replace("-", "_")
        result[f"{key}_ratio"] = round(about["seconds"] / seconds, 1)
        result[f"{key}_seconds"] = round(about["seconds"], 2)
        result[f"{key}_processes"] = about["processes"]
        result[f"{key}_weights_apart"] = about["weights_apart"]
        result[f"{key}_loss_apart"] = round(about["loss_apart"], 5)
    return result | {
        "ours_all_seconds": [round(each, 3) for each in ours[TIMED].seconds],
        "sites": SITES,
        "sentences_a_site": sentences,
        "sentences_trained": SITES * EPOCHS * sentences,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="A round of ours beside pfl's, Flower's and a plain loop's.")
    parser.add_argument("--python", type=Path, default=HERE / ".venv" / "bin" / "python", help="the peers'")
    parser.add_argument("--sentences", type=int, default=4700, help="a site (default: 4,700)")
    arguments = parser.parse_args()
    if not arguments.python.exists():
        raise SystemExit(f"{arguments.python} is missing: run `make peers`, which sets it up")
    with tempfile.TemporaryDirectory(prefix="fedrel-peers-") as folder:
        os.environ["FEDREL_CACHE"] = str(Path(folder) / "cache")
        result = measure(Path(folder), arguments.python.absolute(), arguments.sentences)
    peers = ("pfl", "flower_ray", "plain")
    wrong = [
        name
        for name in peers
        if result[f"{name}_weights_apart"] > WEIGHT_TOLERANCE or result[f"{name}_loss_apart"] > LOSS_TOLERANCE
    ]
    for name in peers[:2]:
        print(f"{name + '_ratio':18}{result[name + '_ratio']:8}  asked {ASKED}")
    print(json.dumps(result))
    if wrong:
        print(f"{', '.join(wrong)} came to another model than ours", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
