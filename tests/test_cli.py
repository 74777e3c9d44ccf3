"""The command line as its users meet it: what they get, and what a mistake of theirs gets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrel.cli.main import main
from fedrel.files import read_sealed
from tests.conftest import tiny

GOOD = {
    "text": "Ada met Bo in Ulm .",
    "h": {"id": "1", "name": "Ada", "pos": [0, 3]},
    "t": {"id": "2", "name": "Bo", "pos": [8, 10]},
    "relation": "met",
}
FILES = """
method = "one"
[data]
corpus = "files"
train = ["train.jsonl"]
test = ["test.jsonl"]
{data}
[partition]
sites = {sites}
[extractor]
word_dimension = 4
filters = 4
{extractor}
[training]
rounds = 1
[engine]
kind = "local"
"""


def fedrel(*arguments: str | Path, capsys) -> tuple[int, str, str]:
    """Run the command in this process; returns exit code, output and errors."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(sys, "argv", ["fedrel", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")
        main()
    said = capsys.readouterr()
    code = stopped.value.code
    assert isinstance(code, int | None)
    return code or 0, said.out, said.err


def corpus(
    folder: Path, bad: str | None = None, *, sites: int = 2, data: str = "", extractor: str = ""
) -> Path:
    """A config over two small files of JSON lines, the third training line of which may be bad."""
    lines = [
        json.dumps(GOOD | {"h": GOOD["h"] | {"id": str(i)}, "relation": "met" if i % 2 else "NA"})
        for i in range(12)
    ]
    test = "\n".join(lines)
    if bad is not None:
        lines[2] = bad
    (folder / "train.jsonl").write_text("\n".join(lines))
    (folder / "test.jsonl").write_text(test)
    path = folder / "config.toml"
    path.write_text(FILES.format(sites=sites, data=data, extractor=extractor))
    return path


@pytest.mark.usefixtures("real_python")
def test_help_imports_nothing_heavy():
    code = (
        "import sys, fedrel.cli.main; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_version_and_short_help(capsys):
    import fedrel as package

    assert fedrel("--version", capsys=capsys) == (0, f"fedrel {package.__version__}\n", "")
    for arguments in (["-h"], ["run", "-h"], ["config", "show", "-h"], ["site", "-h"]):
        code, out, _ = fedrel(*arguments, capsys=capsys)
        assert (code, "Usage:" in out) == (0, True)


def test_shells_can_complete_the_commands():
    environment = os.environ | {
        "_FEDREL_COMPLETE": "complete_bash",
        "COMP_WORDS": "fedrel pre",
        "COMP_CWORD": "1",
    }
    code = "import sys; from fedrel.cli.main import main; sys.argv = ['fedrel']; main()"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert said.stdout.split() == ["predict", "presets"]


def test_a_config_is_shown_with_every_key_and_runs_as_it_is_shown(tmp_path, capsys):
    from fedrel.config.sources import load_config, presets

    code, out, _ = fedrel("config", "show", "demo", "--set", "training.rounds=2", capsys=capsys)
    assert code == 0
    assert "# C, the share of sites that are active in a round.\nfraction = " in out
    assert "rounds = 2" in out
    assert (
        "# The largest norm of a step's gradient; a larger one is scaled down to it.\n# clip is not set"
        in out
    )
    (tmp_path / "shown.toml").write_text(out)
    assert load_config(tmp_path / "shown.toml") == load_config("demo", ["training.rounds=2"])
    for name in presets():
        _, out, _ = fedrel("config", "show", name, capsys=capsys)
        (tmp_path / "shown.toml").write_text(out)
        assert load_config(tmp_path / "shown.toml") == load_config(name), name


def test_methods_are_listed_with_their_paper_options_and_what_leaves_a_site(capsys):
    from fedrel.methods.by_name import methods

    code, out, _ = fedrel("methods", capsys=capsys)
    assert code == 0
    assert re.findall(r"^([^ :]+): ", out, re.MULTILINE) == list(methods())
    block = out[out.index("\nfedprox: ") :].split("\n")[1:6]
    assert block[1].startswith("  paper: Li et al.")
    assert "mu=" in block[2]
    assert block[3:] == ["  leaves a site: Update", "  trained by: kernels"]
    code, out, _ = fedrel("methods", "--json", capsys=capsys)
    listed = {one["name"]: one for one in json.loads(out)}
    assert (code, list(listed)) == (0, list(methods()))
    assert [one["name"] for one in listed["feded"]["leaves_site"]] == ["Predictions", "BytePredictions"]
    code, out, _ = fedrel("methods", "lazy-mil+fedprox", capsys=capsys)
    assert (code, out.splitlines()[0].startswith("lazy-mil+fedprox: ")) == (0, True)
    assert "  Claims: " in out and "    value (float32, claims): " in out and "  fedprox.mu = " in out
    code, _, err = fedrel("methods", "lazi-mil", capsys=capsys)
    assert (code, "did you mean 'lazy-mil'?" in err) == (2, True)


def test_presets_as_json(capsys):
    code, out, _ = fedrel("presets", "--json", capsys=capsys)
    listed = json.loads(out)
    assert code == 0
    assert {"demo", "fedlcc/cdr"} <= {one["name"] for one in listed}
    assert all(one["about"] for one in listed)


def test_run_leaves_a_whole_run_folder(tmp_path, capsys):
    path = tmp_path / "tiny.toml"
    path.write_text(tiny(method="lazy-mil").to_toml())
    code, out, _ = fedrel("run", path, "--set", "training.rounds=2", "--out", tmp_path / "run", capsys=capsys)
    assert code == 0
    assert "auc" in out
    names = {file.name for file in (tmp_path / "run").iterdir()}
    assert names >= {
        "config.toml", "metrics.jsonl", "result.json", "checkpoint", "model", "report.html", "environment.json",
        "pr_curve.json", "case_study.json",
    }  # fmt: skip
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["method"] == "lazy-mil"
    assert result["rounds"] == 2
    assert set(result["metrics"]) == {
        "auc",
        "auc_2000",
        "p_at_100",
        "p_at_200",
        "p_at_300",
        "p_mean",
        "max_f1",
    }
    assert result["bytes"]["up"] > 0 < result["bytes"]["down"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]


def test_output_that_is_no_terminal_has_lines_and_json_is_alone(tmp_path, capsys):
    """A line at the beginning, for the first round and at the end, and few between; quiet: none."""
    path = tmp_path / "tiny.toml"
    path.write_text(tiny(method="one", training__rounds=1).to_toml())
    code, out, err = fedrel("run", path, "--out", tmp_path / "run", capsys=capsys)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "one, seed 1: 900 sentences at 6 sites"
    assert "of the training tokens are not in the vocabulary" in lines[1]
    assert lines[2].startswith("training tokens out of vocabulary: ")
    assert lines[3].startswith("one, seed 1: round 1 of 1, loss ")
    assert lines[4].startswith("one, seed 1: finished after 1 rounds, auc 0.")
    assert lines[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    again = ["run", path, "--out", tmp_path / "run", "--resume"]
    code, quiet, err = fedrel(*again, "-q", capsys=capsys)
    assert (code, quiet.splitlines(), err) == (0, lines[5:], "")
    code, out, err = fedrel(*again, "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out) == read_sealed(tmp_path / "run" / "result.json", "a result", "")
    assert "finished after 1 rounds" in err
    code, out, err = fedrel(*again, "--json", "--quiet", capsys=capsys)
    assert (code, json.loads(out)["method"], err) == (0, "one", "")


def test_a_report_is_written_anew(tmp_path, capsys):
    config = tmp_path / "tiny.toml"
    config.write_text(tiny(training__rounds=1).to_toml())
    compared = ["compare", config, "--methods", "none", "--out", tmp_path / "all", "--json"]
    code, out, _ = fedrel(*compared, capsys=capsys)
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "all" / "comparison.json").read_text())
    for folder in (tmp_path / "all", tmp_path / "all" / "none" / "seed-1"):
        (folder / "report.html").unlink()
        assert fedrel("report", folder, capsys=capsys) == (0, f"report: {folder / 'report.html'}\n", "")
        assert (folder / "report.html").exists()
    code, _, err = fedrel("report", tmp_path, capsys=capsys)
    assert (code, "holds no finished run" in err) == (2, True)


def test_compare_refuses_an_unknown_method_before_training(tmp_path, capsys):
    path = corpus(tmp_path)
    code, _, err = fedrel("compare", path, "--methods", "one,foo", "--out", tmp_path / "all", capsys=capsys)
    assert (code, "no method is called 'foo'\nhint: " in err) == (2, True)
    assert not (tmp_path / "all").exists()


PLUGIN = """
from fedrel.methods.fedavg import FedAvg

class Mine(FedAvg):
    \"\"\"As FedAvg, under a name of its own.\"\"\"

    name = "mine"
"""


def test_a_method_of_a_file_runs_in_worker_processes_too(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(PLUGIN)
    path = tmp_path / "tiny.toml"
    path.write_text(tiny(training__rounds=1, engine__kind="workers", engine__workers=2).to_toml())
    # In a process of its own: a method that is loaded once stays.
    command = [sys.executable, "-m", "fedrel", "run", path, "--set", "method=mine", "--out", tmp_path / "run"]
    said = subprocess.run(
        [*map(str, command), "--plugin", "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["method"] == "mine"
    assert f'"{tmp_path / "mine.py"}"' in (tmp_path / "run" / "config.toml").read_text()
    code, _, err = fedrel("run", path, "--plugin", tmp_path / "nowhere.py", capsys=capsys)
    assert (code, "nowhere.py: cannot load the plug-in: expected a Python file" in err) == (2, True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"text": "Ada', "train.jsonl:3: broken JSON"),
        (
            json.dumps(GOOD | {"h": {"id": "1", "name": "Ada", "pos": [90, 93]}}),
            "train.jsonl:3: the position [90, 93)",
        ),
        (json.dumps({"text": "x"}), "train.jsonl:3: "),
    ],
)
def test_a_bad_line_is_named(tmp_path, capsys, bad, message):
    code, _, err = fedrel("run", corpus(tmp_path, bad), "--out", tmp_path / "run", capsys=capsys)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_a_relation_outside_the_map_is_named(tmp_path, capsys):
    (tmp_path / "rel2id.json").write_text('{"NA": 0, "meets": 1}')
    path = corpus(tmp_path, data='relations = "rel2id.json"')
    code, _, err = fedrel("run", path, "--out", tmp_path / "run", capsys=capsys)
    assert (code, "train.jsonl:2: the relation 'met' is not in the relation map" in err) == (2, True)


def test_too_few_columns_are_named(tmp_path, capsys):
    (tmp_path / "train.jsonl").write_text("m.1\tm.2\tada\tbo\n")
    path = corpus(tmp_path, data='format = "nyt10"')
    (tmp_path / "train.jsonl").write_text("m.1\tm.2\tada\tbo\n")
    code, _, err = fedrel("run", path, "--out", tmp_path / "run", capsys=capsys)
    assert (code, "train.jsonl:1: expected 6 columns" in err) == (2, True)


def test_vectors_of_another_size_are_named(tmp_path, capsys):
    (tmp_path / "vectors.txt").write_text("ada 1 2 3\nbo 4 5 6\n")
    path = corpus(tmp_path, extractor='vectors = "vectors.txt"')
    code, _, err = fedrel("run", path, "--out", tmp_path / "run", capsys=capsys)
    assert (code, "the vectors have 3 dimensions, but extractor.word_dimension is 4" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training.roundz=3"], "unknown key 'training.roundz'\nhint: did you mean 'rounds'?"),
        (["--set", "trainin.rounds=3"], "did you mean 'training'?"),
        (["--set", "training.rounds=zero"], "training.rounds"),
        (["--set", 'data.train=["nowhere.jsonl"]'], "nowhere.jsonl"),
        (["--set", "partition.sites=500"], "over 500 sites"),
        (["--set", "training.device=foo"], "training.device 'foo' cannot be used"),
        (["--set", "extractor.window=4"], "must be odd"),
        (["--set", "method=lazi-mil"], "did you mean 'lazy-mil'?"),
        (
            ["--set", "methods.lazy-mil.keyed=true", "--set", "method=lazy-mil"],
            "did you mean 'keyed_triples'?",
        ),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, capsys, arguments, message):
    code, _, err = fedrel("run", corpus(tmp_path), "--out", tmp_path / "run", *arguments, capsys=capsys)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_an_unknown_command_suggests_one_once(capsys):
    code, _, err = fedrel("comparee", capsys=capsys)
    assert (code, err.count("Did you mean 'compare'?")) == (2, 1)


def test_an_unknown_preset_suggests_one(tmp_path, capsys):
    code, _, err = fedrel("run", "demmo", capsys=capsys)
    assert (code, "did you mean 'demo'?" in err) == (2, True)


def test_every_preset_is_a_valid_config(capsys):
    from fedrel.config.sources import load_config, presets, presets_folder
    from fedrel.methods.by_name import method

    code, out, _ = fedrel("presets", capsys=capsys)
    assert code == 0
    for name in presets():
        assert name in out
        config = load_config(presets_folder() / f"{name}.toml")
        method(config.method, config.methods)


def test_sweep_then_compare_takes_each_methods_best(tmp_path, capsys):
    path = tmp_path / "tiny.toml"
    path.write_text(tiny(training__rounds=1).to_toml())
    sweep = ["sweep", path, "--grid", "training.learning_rate=0.01,0.4", "--methods", "none,one"]
    code, _, _ = fedrel(*sweep, "--out", tmp_path / "sweep", capsys=capsys)
    assert code == 0
    found = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert len(found["rows"]) == 4
    for method in ("none", "one"):
        dev = {
            row["settings"]["training.learning_rate"]: row["dev"]
            for row in found["rows"]
            if row["method"] == method
        }
        assert found["best"][method]["training.learning_rate"] == max(dev, key=dev.__getitem__)
    compare = ["compare", path, "--methods", "none,one", "--seeds", "2", "--best", tmp_path / "sweep"]
    code, out, _ = fedrel(*compare, "--out", tmp_path / "compare", capsys=capsys)
    assert code == 0
    assert "none" in out
    rows = json.loads((tmp_path / "compare" / "comparison.json").read_text())["rows"]
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("none", 1),
        ("none", 2),
        ("one", 1),
        ("one", 2),
    ]
    best = found["best"]["one"]["training.learning_rate"]
    assert f"learning_rate = {best}" in (tmp_path / "compare" / "one" / "seed-1" / "config.toml").read_text()


def test_text_and_a_kb_go_all_the_way_to_new_facts(tmp_path, capsys):
    """align, partition, run and predict on the built-in world's raw documents."""
    from fedrel.data.world import World, WorldConfig

    world = World(WorldConfig(sentences=1000, relations=4, noise=0.2, mean_length=14))
    world.documents(tmp_path / "text")
    world.documents(tmp_path / "fresh", split="test", files=1)
    world.kb(tmp_path / "kb.tsv", na=True)
    texts = sorted((tmp_path / "text").glob("*.txt"))
    align = [
        "align",
        *texts,
        "--kb",
        tmp_path / "kb.tsv",
        "--out",
        tmp_path / "train.jsonl",
        "--na-rate",
        "0",
    ]
    code, out, _ = fedrel(*align, capsys=capsys)
    assert (code, "900 instances" in out) == (0, True)
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    for line in lines:
        start, end = line["h"]["pos"]
        assert line["text"][start:end]
    whole = (tmp_path / "text" / f"{lines[0]['source']}.txt").read_text()
    assert whole[slice(*lines[0]["span"])] == lines[0]["text"]

    (tmp_path / "config.toml").write_text(
        FILES.format(sites=5, data="", extractor="")
        .replace("test.jsonl", "train.jsonl")
        .replace('"one"', '"lazy-mil"')
    )
    config = [
        "--set",
        "partition.kind=source",
        "--set",
        "training.rounds=4",
        "--set",
        "training.learning_rate=1.0",
    ]
    drawn = tmp_path / "sites.png"
    code, out, _ = fedrel("partition", tmp_path / "config.toml", *config, "--plot", drawn, capsys=capsys)
    assert code == 0
    assert all(text.stem in out for text in texts[:5])
    assert drawn.read_bytes().startswith(b"\x89PNG")
    code, _, _ = fedrel("run", tmp_path / "config.toml", *config, "--out", tmp_path / "run", capsys=capsys)
    assert code == 0

    world.kb(tmp_path / "names.tsv", split="test", na=True)
    predict = ["predict", tmp_path / "run" / "model", *sorted((tmp_path / "fresh").glob("*.txt"))]
    code, out, _ = fedrel(*predict, "--kb", tmp_path / "names.tsv", "--threshold", "0.2", capsys=capsys)
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert found
    assert [fact["probability"] for fact in found] == sorted((f["probability"] for f in found), reverse=True)
    for fact in found:
        assert fact["probability"] >= 0.2
        assert fact["relation"] in world.relations[1:]
        assert isinstance(fact["known"], bool)
        assert fact["sentences"]
    code, _, _ = fedrel(
        "predict",
        tmp_path / "run" / "model",
        tmp_path / "train.jsonl",
        "--out",
        tmp_path / "facts.jsonl",
        capsys=capsys,
    )
    assert code == 0
    assert (tmp_path / "facts.jsonl").exists()


def test_a_model_pools_the_sentences_of_a_pair(tmp_path, capsys):
    """ONE's test rule: a bag's probability is the highest of its sentences', and the best stands first."""
    from fedrel import load_model
    from fedrel.data.sentences import Instance, Mention

    code, _, _ = fedrel("run", corpus(tmp_path), "--out", tmp_path / "run", capsys=capsys)
    assert code == 0
    model = load_model(tmp_path / "run" / "model")

    def instance(text: str) -> Instance:
        place = text.index("Bo")
        return Instance(text, Mention("1", "Ada", 0, 3), Mention("2", "Bo", place, place + 2), "NA")

    texts = ["Ada met Bo", "Ada and Bo saw Ulm", "Ada met Bo in Ulm ."]
    (pooled,) = model.predict(map(instance, texts), threshold=0)
    alone = {text: model.predict([instance(text)], threshold=0)[0].probability for text in texts}
    assert pooled.probability == pytest.approx(max(alone.values()))
    assert {one.text: one.probability for one in pooled.sentences} == pytest.approx(alone)
    assert pooled.sentences[0].probability == max(one.probability for one in pooled.sentences)


def test_what_is_not_a_model_is_named(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text(json.dumps(GOOD))
    code, _, err = fedrel("predict", tmp_path, tmp_path / "x.jsonl", capsys=capsys)
    assert (code, "is not a model folder" in err) == (2, True)


def test_the_demo_compares_six_methods_and_finds_facts(tmp_path, capsys):
    small = [
        "data.sentences=1000",
        "data.pairs=450",
        "training.rounds=2",
        "extractor.filters=8",
        "partition.sites=4",
    ]
    settings = [word for setting in small for word in ("--set", setting)]
    code, out, err = fedrel("demo", "--out", tmp_path / "demo", *settings, capsys=capsys)
    assert (code, err) == (0, "")
    rows = json.loads((tmp_path / "demo" / "comparison.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["none", "one", "ave", "att", "att-ra", "lazy-mil"]
    assert "facts in fresh text that the training KB does not have" in out
    assert (tmp_path / "demo" / "report.html").exists()


@pytest.mark.parametrize("limit", [200, 3_000, 30_000])
def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path, limit):
    """The limit is the kernel's on file size: a write beyond it fails like one on a full disk."""
    path = tmp_path / "tiny.toml"
    path.write_text(tiny().to_toml())
    code = (
        "import resource, sys; from fedrel.cli.main import main;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        f"sys.argv = ['fedrel', 'run', {str(path)!r}, '--out', {str(tmp_path / 'run')!r}]; main()"
    )
    environment = os.environ | {"FEDREL_CACHE": str(tmp_path / "cache")}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert said.returncode == 2
    assert "cannot write" in said.stderr
    assert "Traceback" not in said.stderr
    left = [
        file
        for folder in ("run", "cache")
        for file in (tmp_path / folder).rglob("*")
        if file.name.startswith(".")
    ]
    assert left == []


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(tiny(training__rounds=500, engine__kind="workers", engine__workers=2).to_toml())
    code = (
        "import signal, sys; from fedrel.cli.main import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's background job ignores it
        f"sys.argv = ['fedrel', 'run', {str(path)!r}, '--out', {str(tmp_path / 'run')!r}]; main()"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "checkpoint").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in err
    assert "Traceback" not in err


def test_what_a_command_cannot_do_is_said_before_anything_is_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, said = fedrel("sweep", corpus(tmp_path), "--grid", "training.learning_rate", capsys=capsys)
    assert code == 2
    assert "cannot read the grid 'training.learning_rate'" in said
    code, _, said = fedrel("reproduce", "feded/table3", "--set", "training.rounds=1", capsys=capsys)
    assert code == 2
    assert "give it a folder by --out" in said
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "runs").exists()
