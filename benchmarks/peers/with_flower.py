"""The rounds of `run.py` by Flower's simulation on Ray: `python with_flower.py FOLDER`.

Two of Ray's processes with one core and one thread each serve the virtual nodes. The small round comes first, so
that Ray, both processes and torch in them are started before the timed one.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path

import torch
from exchange import CHECK, TIMED, Settings, SiteText, initial, write_result
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from published import Published

FOLDER = "PEERS_FOLDER"  # an environment variable: where the parts are

client, server = ClientApp(), ServerApp()


@cache
def network(part: Path) -> Published:
    """One network a process and part."""
    torch.set_num_threads(1)
    return Published(initial(part), Settings.read(part).dropout)


@cache
def text(part: Path, site: int) -> SiteText:
    """A site's sentences."""
    return SiteText.read(part, site)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train from the weights that came, and send back all weights."""
    part = Path(os.environ[FOLDER]) / str(message.content["config"]["part"])
    net, own = network(part), text(part, int(context.node_config["partition-id"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = own.fit(net, Settings.read(part))
    metrics = MetricRecord({"loss": loss, "num-examples": len(own)})
    answer = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=answer, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Both rounds."""
    for name in (CHECK, TIMED):
        part = Path(os.environ[FOLDER]) / name
        net, settings = network(part), Settings.read(part)
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=settings.sites, min_available_nodes=settings.sites
        )
        arrays, config = ArrayRecord(net.state_dict()), ConfigRecord({"part": name})
        begin = time.perf_counter()
        result = strategy.start(grid, arrays, num_rounds=1, train_config=config)
        seconds = time.perf_counter() - begin
        net.load_state_dict(result.arrays.to_torch_state_dict())
        loss = float(result.train_metrics_clientapp[1]["loss"])
        write_result(part, "flower-ray", net.as_ours(), loss, seconds, processes=os.cpu_count())


def simulate(folder: str) -> None:
    """Start Ray, and run both rounds."""
    os.environ[FOLDER] = folder
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    sites = Settings.read(Path(folder) / CHECK).sites
    run_simulation(server, client, num_supernodes=sites, backend_config=resources)


if __name__ == "__main__":
    from with_flower import (
        simulate as simulate_by_name,
    )  # so that Ray's processes can import what it refers to

    simulate_by_name(sys.argv[1])
