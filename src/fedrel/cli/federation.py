"""The commands for a federation between real institutions: `federation`, `coordinator` and `site`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrel.cli.options import AsJson, FromRound, Settings, check_from, names, print_json
from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.data.store import Progress


federation = typer.Typer(help="A federation as a whole.", no_args_is_help=True, suggest_commands=False)
coordinator = typer.Typer(help="At the coordinator.", no_args_is_help=True, suggest_commands=False)
site = typer.Typer(help="At a site.", no_args_is_help=True, suggest_commands=False)

ExperimentFile = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT", help="A TOML file with a [shared] table.")
]
CoordinatorPath = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder.")]
CoordinatorOption = Annotated[Path, typer.Option("--folder", help="The coordinator's folder.")]
AuthorityOption = Annotated[Path, typer.Option(help="The folder `authority` that `federation init` wrote.")]
SitePath = Annotated[Path, typer.Argument(metavar="FOLDER", help="The site's folder.")]
HERE = Path()


def add_to(app: typer.Typer) -> None:
    """Add these commands to fedrel's."""
    app.add_typer(federation, name="federation")
    app.add_typer(coordinator, name="coordinator")
    app.add_typer(site, name="site")
    app.command("audit", hidden=True)(audit)  # its name before it was `site audit`


@federation.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    sites: Annotated[str, typer.Option(help="The sites' names, separated by commas; the order counts.")],
    host: Annotated[str, typer.Option(help="The coordinator's machine, as the sites reach it.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where it listens.")] = 9092,
) -> None:
    """Make certificates, keys, a folder for the coordinator and one for each site."""
    from fedrel.deployment.folders import init_federation

    named = names(sites)
    init_federation(folder, named, host, port)
    _say(f"{folder / 'coordinator'}: for {host}")
    for name in named:
        _say(f"{folder / 'sites' / name}: for {name} alone")
    _say(f"{folder / 'authority'}: keep it safe; it signs certificates for other servers")
    _say(
        "Each has a README.md that says what to run. Move the folders to where they belong, and keep no copy."
    )


@federation.command("add-site")
def add_site(
    name: Annotated[str, typer.Argument(help="The new site's name.")],
    out: Annotated[Path, typer.Option(help="The new site's folder.")],
    authority: AuthorityOption,
    folder: CoordinatorOption = HERE,
) -> None:
    """Make the folder of one more site, and let the coordinator know its key."""
    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.membership import add_site as add

    if not add(authority, CoordinatorFolder(folder), name, out):
        _say(f"{out}: put triple.key of another site into it, from site to site")
    _say(
        f"{out}/site.pub: for secure sums, the other sites put it into their folder `peers` (docs/deployment.md)"
    )
    _say(f"{out}: for {name} alone; start the coordinator again, then the site")


@federation.command("remove-site")
def remove_site(
    name: Annotated[str, typer.Argument(help="The site's name.")], folder: CoordinatorOption = HERE
) -> None:
    """Let a site take no part any more; the others keep their numbers."""
    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.membership import remove_site as remove

    remove(CoordinatorFolder(folder), name)
    _say(f"{name} is removed: start the coordinator again, and it rejects its key")
    _say("it still has triple.key: the other sites should replace theirs by a new one, the same for all")


@federation.command()
def renew(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="The coordinator's, or sites'.")],
    authority: AuthorityOption,
) -> None:
    """Sign new certificates for the coordinator or for sites, valid for two years."""
    from fedrel.deployment.membership import renew as sign

    for written in sign(authority, folders):
        _say(f"{written}: new; start its program again")


@federation.command()
def run(
    experiment: ExperimentFile,
    folder: CoordinatorOption = HERE,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    name: Annotated[str, typer.Option(help="The run's name; default: the experiment's.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    from_round: FromRound = None,
) -> None:
    """Train between the sites that are connected."""
    from fedrel.deployment.experiment import load_experiment
    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.submit import run_experiment

    check_from(from_round, resume)
    asked = load_experiment(experiment, settings)
    out = run_experiment(
        CoordinatorFolder(folder),
        asked,
        name or experiment.stem,
        resume=resume,
        from_round=from_round,
        say=_say,
    )
    _say(f"model: {out / 'model'}")
    _say(f"report: {out / 'report.html'}")


@federation.command()
def status(folder: CoordinatorPath = HERE, as_json: AsJson = False) -> None:
    """Show the sites, when each was last heard of, the round and the bytes."""
    from rich.console import Console

    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.status import federation_status, status_table

    found = federation_status(CoordinatorFolder(folder))
    if as_json:
        print_json(found)
    else:
        Console().print(status_table(found))


@coordinator.command()
def publish(
    experiment: ExperimentFile,
    folder: CoordinatorOption = HERE,
    settings: Settings = [],  # noqa: B006
) -> None:
    """Write what all sites must agree on, to be handed to them."""
    from fedrel.deployment.experiment import load_experiment
    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.publishing import publish_experiment

    with _reading() as progress:
        published = publish_experiment(
            CoordinatorFolder(folder), load_experiment(experiment, settings), progress
        )
    _list(published.folder)
    _say(f"Give {published.folder} to every site.")


@coordinator.command("start")
def start_coordinator(
    folder: CoordinatorPath = HERE,
    bind: Annotated[
        str, typer.Option(help="The address to listen on, of one of this machine's networks.")
    ] = "0.0.0.0",
) -> None:
    """Listen for the sites, until stopped."""
    from fedrel.deployment.flower_programs import running, wait_until_free, wait_until_listening
    from fedrel.deployment.folders import CoordinatorFolder
    from fedrel.deployment.keys import check_address, expiry_notes
    from fedrel.deployment.superlink import register_sites, superlink_program
    from fedrel.deployment.supernode import check_secret, trusted

    here = CoordinatorFolder(folder)
    port = here.federation.port
    trusted(here.path / "ca.crt")
    check_secret(here.path / "server.key")
    check_address(bind)
    for note in expiry_notes([here.path / "ca.crt", here.path / "server.crt"]):
        _say(note)
    wait_until_free(port, "does the coordinator run already? If not, stop what listens there")
    with running(superlink_program(here, bind)) as process:
        wait_until_listening(process, port, "Flower's superlink")
        register_sites(here)
        _say(f"listening on port {port} for {', '.join(here.federation.members)}; stop with Ctrl-C")
        problem = f"Flower's superlink ended (exit code {process.wait()})"
    raise UserError(problem, hint="its messages are above; start it again, and go on with --resume")


@site.command()
def artefacts(folder: SitePath = HERE) -> None:
    """List what the coordinator published; check that it is complete, and what this site was prepared with."""
    from fedrel.deployment.artefacts import Artefacts, differences
    from fedrel.deployment.folders import SiteFolder

    here = SiteFolder(folder)
    here.check()
    published = Artefacts(here.artefacts)
    _list(published.folder)
    published.check()
    if here.seal.exists() and (different := differences(here.prepared_with, published.fingerprints)):
        problem = f"the site was prepared with another {', '.join(different)}"
        raise UserError(problem, file=here.path, hint="run `fedrel site prepare` again")


@site.command()
def prepare(folder: SitePath = HERE) -> None:
    """Read, align and index the site's own files; nothing leaves."""
    from fedrel.deployment.folders import SiteFolder
    from fedrel.deployment.site_preparation import prepare_site

    with _reading() as progress:
        done = prepare_site(SiteFolder(folder), progress)
    _say(f"{done.held:,} to train on")
    if done.left_out:
        _say(f"{done.left_out:,} left out: the published knowledge base does not list their pair")
    for objection in done.objections:
        _say(f"site.toml would refuse this experiment: {objection}")


@site.command("start")
def start_site(folder: SitePath = HERE) -> None:
    """Answer the coordinator, as far as site.toml allows, until stopped."""
    from fedrel.deployment.folders import SiteFolder
    from fedrel.deployment.keys import expiry_notes
    from fedrel.deployment.supernode import check_coordinator, check_ready, run_supernode

    here = SiteFolder(folder)
    check_ready(here)
    check_coordinator(here)
    for note in expiry_notes([here.path / "ca.crt", here.path / "runtime.crt"]):
        _say(note)
    code = run_supernode(here, _say)
    problem = f"the coordinator rejected {here.name}, or Flower's supernode failed (exit code {code})"
    hint = (
        "its messages are above; if it was not activated, either the coordinator does not know the key in "
        "site.pub, or it still counts the site as connected, for up to a minute: then start it again"
    )
    raise UserError(problem, hint=hint)


@site.command()
def audit(
    folder: Annotated[Path, typer.Argument(help="A site's folder, or its audit.jsonl.")],
    seen: Annotated[
        str, typer.Option(help="A chain value noted earlier: check that it is still part of the record.")
    ] = "",
) -> None:
    """Check the record of what left the site, and show it."""
    from rich.console import Console

    from fedrel.deployment.audit import audit_table, check
    from fedrel.deployment.folders import SiteFolder
    from fedrel.deployment.policy import SITE_TOML
    from fedrel.deployment.record_check import check_record

    if not folder.exists():
        raise UserError("no such folder", file=folder, hint="name a site's folder")
    path = SiteFolder(folder).audit if folder.is_dir() else folder
    if not path.exists() and not (folder / SITE_TOML).exists():
        raise UserError(f"has neither a record nor {SITE_TOML}", file=folder, hint="name a site's folder")
    found = check_record(SiteFolder(folder)) if folder.is_dir() else check(path)
    Console().print(audit_table(found))
    for line in found.torn:
        _say(f"line {line} is incomplete: a process ended while it wrote it, and nothing left then")
    if found.broken:
        _say(f"BROKEN: line {found.broken.line} {found.broken.reason}. What follows it cannot be trusted.")
        raise typer.Exit(1)
    if seen and seen not in (line.chain for line in found.lines):
        _say(f"BROKEN: no line has the chain value {seen}: the record was replaced")
        raise typer.Exit(1)
    _say(f"every line fits; note the last chain value, and give it to --seen later:\n{found.chain}")


def _list(folder: Path) -> None:
    """The artefacts of a folder with their fingerprints."""
    from rich.console import Console
    from rich.table import Column, Table

    from fedrel.deployment.artefacts import Artefacts

    published = Artefacts(folder)
    table = Table("artefact", "file", Column("SHA-256", overflow="fold"))
    for name, files in published.files.items():
        for file, digest in files.items():
            table.add_row(name, file, digest)
            name = ""  # noqa: PLW2901 - said once
    table.caption = f"all: {published.fingerprint}"
    table.caption_justify = "left"
    Console().print(table)


@contextmanager
def _reading() -> Iterator[Progress]:
    """A display that counts what is read."""
    from rich.console import Console

    with Console(stderr=True).status("reading") as display:
        yield lambda count: display.update(f"reading, {count:,}")


def _say(text: str) -> None:
    typer.echo(text)
