"""Malformed inputs, one a row: each is a clear error, and nothing is lost by it.

A row damages a copy of what is sound, gives a command, and names what the message must
say. The command ends with status 2 and one message without a traceback, and every file
is as it was.
"""

import re
import shutil

import pytest

from benchmarks.paper.__main__ import main as bench
from keras_idea.cli import main
from tests import malformed as m
from tests.malformed import KERAS, STEP, WEIGHTS

TRAIN = ["train", "tiny.toml", "--output", "out"]
GO_ON = ["train", "tiny.toml"]
EVALUATE = ["evaluate", "run", "--text", "text.txt"]
JUDGE = ["evaluate", "preset", "--text", "text.txt"]
ARC = ["evaluate", "run", "--tasks", "arc_challenge", "--local", "."]
EXPORT = ["export", "run", "--preset", "out"]
STOCK = ["export", "preset", "--preset", "out"]
REPORT = ["report", "finished", "--output", "page.html"]
ARRAYS, MANIFEST = f"{STEP}/arrays-00000.safetensors", f"{STEP}/manifest.json"
DAMAGED = "All checkpoints in .* are damaged: of step-00000004 "
BENCH = ["bench", "paper", "--table", "3", "--data", "text", "--output", "out"]


def config(text):
    return {"tiny.toml": m.holds(text)}


def text(content):
    return {"text.txt": m.holds(content)}


#: What is wrong: the command, the damage by file, the message.
ROWS = {
    # Configs.
    "config missing": (
        ["train", "none.toml"],
        {},
        "Cannot read the config 'none.toml'",
    ),
    "config a folder": (["train", "run"], {}, "Cannot read the config 'run'"),
    "config in UTF-16": (
        TRAIN,
        config(m.CONFIG.encode("utf-16")),
        "Cannot read the config 'tiny.toml'",
    ),
    "config of NULs": (TRAIN, config(b"\0" * 64), "tiny.toml: This is not valid TOML"),
    "config cut off": (
        TRAIN,
        config("[model]\nmodel_dim ="),
        "tiny.toml: This is not valid TOML: Invalid value",
    ),
    "config twice the same key": (
        TRAIN,
        config("[run]\nseed = 1\nseed = 2\n"),
        "not valid TOML",
    ),
    "config a binary file": (
        TRAIN,
        config(m.PARQUET),
        "Cannot read the config 'tiny.toml'.*in UTF-8",
    ),
    "config deeply nested": (
        TRAIN,
        config("a = " + "[" * 5000 + "]" * 5000),
        "tiny.toml: This is not valid TOML: maximum recursion",
    ),
    "config endless number": (
        TRAIN,
        config("[run]\nseed = " + "9" * 5000),
        "tiny.toml: .*not valid TOML",
    ),
    "config huge number": (
        TRAIN,
        config("[budget]\nrecover_steps = 99999999999999999999"),
        r"`budget.recover_steps` must be at most 2147483647. Received: .*999",
    ),
    "config huge batch": (
        TRAIN,
        config("[data]\nbatch_size = 9223372036854775808"),
        r"`data.batch_size` must be at most 2147483647. Received: .*808",
    ),
    "config output with NUL": (
        GO_ON,
        config('[run]\noutput = "a\\u0000b"'),
        "`run.output` must not hold a NUL",
    ),
    "config infinite rate": (
        TRAIN,
        config("[optimizer]\npeak_learning_rate = inf"),
        "`optimizer.peak_learning_rate` must be a number in .*=inf",
    ),
    "config rate no number": (
        TRAIN,
        config("[optimizer]\nweight_decay = nan"),
        "`optimizer.weight_decay` must be a number in .*=nan",
    ),
    "config table of tables": (
        TRAIN,
        config("[[model]]\nmodel_dim = 8"),
        "`model` must be a table",
    ),
    "config date": (
        TRAIN,
        config("[run]\nseed = 2026-01-01"),
        "`run.seed` must be an integer",
    ),
    "config path with NUL": (
        TRAIN,
        config('[data]\ntext = "a\\u0000b"'),
        "`data.text` must not hold a NUL",
    ),
    "config unknown key": (
        TRAIN,
        config("[model]\nwidth = 8"),
        "Unknown key .*'width'",
    ),
    "config output a file": (
        ["train", "tiny.toml", "--output", "text.txt"],
        {},
        "'text.txt' is a file. Give another folder",
    ),
    "config output empty": (
        ["train", "tiny.toml", "--output", ""],
        {},
        "`run.output` must be a non-empty string",
    ),
    "config output no run": (
        ["train", "tiny.toml", "--output", "preset", "--overwrite"],
        {},
        "'preset' is no run folder .* never overwritten",
    ),
    "config preset nowhere": (
        TRAIN,
        config('[model]\npreset = "nowhere"\n[data]\ntext = "text.txt"'),
        "`model.preset`: no model to prune comes from 'nowhere'",
    ),
    # Text.
    "text missing": (TRAIN, {"text.txt": m.is_gone}, "No text at 'text.txt'"),
    "text empty": (TRAIN, text(""), "'text.txt' is empty"),
    "text binary": (TRAIN, text(b"\x89PNG\r\n\x1a\n\0\0"), "'text.txt' is not UTF-8"),
    "text in Latin-1": (TRAIN, text("Grüße ".encode("latin-1") * 50), "is not UTF-8"),
    "text too short": (
        TRAIN,
        text("too short"),
        "text.txt.* has 7 bytes; .* at least 17",
    ),
    "text a folder of nothing": (TRAIN, {"text.txt": m.is_a_folder}, "No text in 'tex"),
    "text to judge missing": (
        ["evaluate", "run", "--text", "none.txt"],
        {},
        "No text at 'none.txt'",
    ),
    "text to judge compressed": (EVALUATE, text(m.TRUNCATED_GZ), "is not UTF-8 text"),
    "text to judge of one byte": (EVALUATE, text("a"), "'text.txt' has 1 token; "),
    # Corpora.
    "zst cut off": (
        m.cache_of("a.jsonl.zst"),
        {"a.jsonl.zst": m.holds(m.TRUNCATED_ZST)},
        r"Cannot read '.*a.jsonl.zst' to its end: .*truncated.*documents .* were read",
    ),
    "zst that is none": (
        m.cache_of("a.jsonl.zst"),
        {"a.jsonl.zst": m.holds(m.GOOD_LINES)},
        "a.jsonl.zst' to its end: it is no sound Zstandard data",
    ),
    "gz cut off": (
        m.cache_of("a.jsonl.gz"),
        {"a.jsonl.gz": m.holds(m.TRUNCATED_GZ)},
        "Cannot read '.*a.jsonl.gz' to its end",
    ),
    "parquet that is none": (
        m.cache_of("a.parquet"),
        {"a.parquet": m.holds(b"PAR1 not really PAR1")},
        "a.parquet' to its end: it is no sound parquet file",
    ),
    "parquet cut off": (
        m.cache_of("a.parquet"),
        {"a.parquet": m.holds(m.PARQUET[:-9])},
        "a.parquet' to its end: it is no sound parquet file",
    ),
    "parquet of other columns": (
        m.cache_of("a.parquet", field="body"),
        {"a.parquet": m.holds(m.PARQUET)},
        "a.parquet: missing field: .*no column 'body' among: text",
    ),
    "line of broken JSON": (
        m.cache_of("a.jsonl"),
        {"a.jsonl": m.holds(m.GOOD_LINES + b'{"text": "cut')},
        "a.jsonl, line 4: broken json",
    ),
    "line of deep JSON": (
        m.cache_of("a.jsonl"),
        {"a.jsonl": m.holds(b"[" * 100_000)},
        "a.jsonl, line 1: broken json",
    ),
    "line of another field": (
        m.cache_of("a.jsonl", field="body"),
        {"a.jsonl": m.holds(m.GOOD_LINES)},
        "a.jsonl, line 1: missing field: .*no 'body' among: text, url",
    ),
    "line of a number": (
        m.cache_of("a.jsonl"),
        {"a.jsonl": m.holds(b'{"text": 3}\n')},
        "a.jsonl, line 1: not a string",
    ),
    "line of Latin-1": (
        m.cache_of("a.txt", split="lines"),
        {"a.txt": m.holds("ein\nGrüße\n".encode("latin-1"))},
        "a.txt, line 2: invalid utf8: .*0xfc",
    ),
    "corpus of blanks": (
        m.cache_of("a.txt"),
        {"a.txt": m.holds(b" \n \n")},
        "a.txt: empty: .*white space",
    ),
    # Checkpoints.
    "arrays cut off": (
        GO_ON,
        {ARRAYS: m.cut_off},
        DAMAGED + "arrays-00000.safetensors has been changed or cut off. Restore one",
    ),
    "a byte of the manifest": (
        GO_ON,
        {MANIFEST: m.flip_a_byte},
        DAMAGED + "manifest.json (cannot be read|has been changed)",
    ),
    "manifest of nothing": (
        GO_ON,
        {MANIFEST: m.holds("null")},
        DAMAGED + "manifest.json has been changed",
    ),
    "manifest of other types": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda found: {**found, "arrays": 3, "files": []})},
        DAMAGED + "manifest.json is not one that this package has written",
    ),
    "manifest without facts": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda found: {**found, "facts": {}})},
        "step-00000004: its manifest says 'epochs': None",
    ),
    "manifest without FFNs": (
        GO_ON,
        {
            MANIFEST: m.manifest_with(
                lambda found: found["facts"]["model"].update(ffns=[{}])
            )
        },
        "step-00000004: The checkpoint tells of no FFNs",
    ),
    "manifest of absurd epochs": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda found: found["facts"].update(epochs=-7))},
        "step-00000004: its manifest says 'epochs': -7",
    ),
    "manifest of a later version": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda f: {**f, "format": 99})},
        DAMAGED + "its format is 99, and this version of the package",
    ),
    "manifest that leads outside": (
        GO_ON,
        {
            MANIFEST: m.manifest_with(
                lambda found: found["files"].update({"../../../../../text.txt": "0"})
            )
        },
        DAMAGED + "manifest.json is not one that this package",
    ),
    "arrays a link": (
        GO_ON,
        {ARRAYS: m.is_a_link("/dev/zero")},
        DAMAGED + "arrays-00000.safetensors is no plain file",
    ),
    "arrays a folder": (
        GO_ON,
        {ARRAYS: m.is_a_folder},
        DAMAGED + "arrays-00000.safetensors is no plain file",
    ),
    "arrays that are none": (
        GO_ON,
        {ARRAYS: m.arrays_with(m.holds("garbage"))},
        "step-00000004: arrays-00000.safetensors does not hold what",
    ),
    "arrays of absurd shape": (
        GO_ON,
        {
            ARRAYS: m.arrays_with(
                m.holds(
                    (64).to_bytes(8, "little")
                    + b'{"a":{"dtype":"F32","shape":[99999999999],'
                    b'"data_offsets":[0,4]}}'.ljust(64)
                )
            )
        },
        "arrays-00000.safetensors does not hold what.*invalid shape",
    ),
    "arrays of another model": (
        GO_ON,
        {ARRAYS: m.arrays_with(m.other_arrays)},
        "does not hold what its manifest says .*contain tensor",
    ),
    "checkpoint of another text": (
        GO_ON,
        text(m.TEXT.replace("quick", "quiet")),
        "are of another run: text was",
    ),
    "checkpoint of another model": (
        GO_ON,
        config(m.CONFIG.replace("hidden_dim = 32", "hidden_dim = 36")),
        "another config: model.hidden_dim was 32 there and is 36",
    ),
    # Models and presets.
    "no such model": (
        ["evaluate", "nowhere", "--text", "text.txt"],
        {},
        "No model to evaluate in 'nowhere': there is no such folder",
    ),
    "an empty folder": (
        ["export", "empty", "--preset", "out"],
        {"empty": m.is_a_folder},
        "No model to export in 'empty'",
    ),
    "a file for a run": (
        ["export", "text.txt", "--hf", "out"],
        {},
        "No model to export in 'text.txt'",
    ),
    "keras file empty": (
        EXPORT,
        {KERAS: m.holds("")},
        "narrow.keras' cannot be loaded",
    ),
    "keras file no zip": (
        EXPORT,
        {KERAS: m.holds("garbage" * 99)},
        "narrow.keras' cannot be loaded",
    ),
    "keras file cut off": (
        EXPORT,
        {KERAS: m.cut_off},
        "narrow.keras' cannot be loaded",
    ),
    "keras file zip of garbage": (
        EVALUATE,
        {KERAS: m.zip_of(config__json="{", model__weights__h5="x")},
        "narrow.keras' cannot be loaded",
    ),
    "keras file of nothing": (
        EVALUATE,
        {KERAS: m.zip_of(readme__txt="hello")},
        "narrow.keras' cannot be loaded",
    ),
    "preset config cut off": (
        STOCK,
        {"preset/config.json": m.cut_off},
        "The preset 'preset' cannot be loaded",
    ),
    "preset config no JSON": (
        JUDGE,
        {"preset/config.json": m.holds("model = llama")},
        "The preset 'preset' cannot be loaded",
    ),
    "preset of unknown class": (
        JUDGE,
        {"preset/config.json": m.json_with(class_name="Nobody", registered_name="x>y")},
        "The preset 'preset' cannot be loaded",
    ),
    "preset config of a list": (
        STOCK,
        {"preset/config.json": m.holds("[]")},
        "The preset 'preset' cannot be loaded",
    ),
    "preset without weights": (
        STOCK,
        {WEIGHTS: m.is_gone},
        "No model to export in 'preset'",
    ),
    "preset weights cut off": (
        STOCK,
        {WEIGHTS: m.cut_off},
        "The preset 'preset' cannot be loaded",
    ),
    "preset weights no HDF5": (
        JUDGE,
        {WEIGHTS: m.holds("garbage")},
        "The preset 'preset' cannot be loaded",
    ),
    "preset tokenizer broken": (
        STOCK,
        {"preset/assets/tokenizer/vocabulary.json": m.cut_off},
        "The preset 'preset' cannot be loaded",
    ),
    # Places and numbers.
    "export over something else": (
        ["export", "run", "--preset", "finished", "--overwrite"],
        {},
        "'finished' is not a KerasHub preset .* never overwritten",
    ),
    "export below a file": (
        ["export", "run", "--preset", "text.txt/out"],
        {},
        "'text.txt/out' cannot be made",
    ),
    "stride of nothing": (
        [*EVALUATE, "--stride", "0"],
        {},
        "`stride` must be an integer",
    ),
    "length of nothing": (
        [*EVALUATE, "--length", "0"],
        {},
        "`--length` must be an int",
    ),
    "length below nothing": (
        [*EVALUATE, "--length", "-5"],
        {},
        "`--length` must be an",
    ),
    "limit below nothing": (
        [*ARC, "--limit", "-1"],
        {},
        "`--limit` must be an integer",
    ),
    "tasks of no name": (
        ["evaluate", "run", "--tasks", " , "],
        {},
        "`--tasks` names no task. Received: ' , '",
    ),
    "task without a file": (
        ["evaluate", "run", "--tasks", "hellaswag", "--local", "."],
        {},
        "hellaswag_val_2000.jsonl' cannot be read",
    ),
    "task of broken lines": (
        ARC,
        {"arc_challenge.jsonl": m.holds('{"query": "a"')},
        "Line 1 of 'arc_challenge.jsonl' is no JSON",
    ),
    "task of other fields": (
        ["evaluate", "run", "--tasks", "hellaswag", "--local", "."],
        {"hellaswag_val_2000.jsonl": m.holds('{"query": "a"}\n')},
        "Line 1 of 'hellaswag_val_2000.jsonl' .*'ctx'",
    ),
    "task of no object": (
        ARC,
        {"arc_challenge.jsonl": m.holds("[1]\n")},
        "Line 1 of 'arc_challenge.jsonl' is no JSON object",
    ),
    "task of nothing": (
        ARC,
        {"arc_challenge.jsonl": m.holds("")},
        "'arc_challenge.jsonl' holds no document",
    ),
    # Reports.
    "report of no run": (["report", "preset"], {}, "'preset' is no run folder"),
    "report of an unfinished run": (["report", "runs/tiny"], {}, "is not finished"),
    "report of a broken table": (
        REPORT,
        {"finished/table.json": m.cut_off},
        "table.json' is broken",
    ),
    "report of other numbers": (
        REPORT,
        {"finished/table.json": m.json_with(rows=[{"name": 3}])},
        "table.json' is broken",
    ),
    "report of broken metrics": (
        REPORT,
        {"finished/metrics.csv": m.holds("run,step\npruned,one\n")},
        "metrics.csv' is broken",
    ),
    "report of half a picture": (
        REPORT,
        {"finished/run.png": m.cut_off},
        "run.png' is broken",
    ),
    "report over something else": (
        ["report", "finished", "--output", "text.txt"],
        {},
        "'text.txt' is no report of keras-idea",
    ),
    # The paper's tables.
    "bench of no table": (
        ["bench", "paper", "--table", "13"],
        {},
        "`table` must be one of .*13",
    ),
    "bench of no scale": ([*BENCH, "--scale", "huge"], {}, "`scale` must be one of"),
    "bench of no seed": (
        [*BENCH, "--seeds", "0"],
        {"text/train.txt": m.holds(m.TEXT), "text/valid.txt": m.holds(m.TEXT)},
        "`seeds` must be an integer >= 1. Received: seeds=0",
    ),
    "bench seeds in words": (
        [*BENCH, "--seeds", "three"],
        {},
        "argument --seeds: .*'three'",
    ),
    "bench of no text": (
        [*BENCH, "--data", "preset"],
        {},
        "'preset' holds no train.txt and valid.txt",
    ),
    "bench of little text": (
        BENCH,
        {"text/train.txt": m.holds("a"), "text/valid.txt": m.holds("b")},
        "has 1 bytes; sequences of 64 bytes need at least 65",
    ),
    "bench output a file": (
        [*BENCH[:-1], "text.txt"],
        {"text/train.txt": m.holds(m.TEXT), "text/valid.txt": m.holds(m.TEXT)},
        "'text.txt' is a file",
    ),
}


def status_of(command):
    """The exit status of a command, and the message of a call in its place."""
    if callable(command):
        with pytest.raises(ValueError) as refused:  # its message: see below
            command()
        return 2, str(refused.value)
    try:
        run = bench if command[0] == "bench" else main
        return run(command[2 * (run is bench) :]), ""
    except SystemExit as ended:  # argparse's own
        return ended.code, ""


@pytest.mark.filterwarnings("ignore:The checkpoint")
@pytest.mark.parametrize("name", ROWS)
def test_malformed(name, sound, tmp_path, monkeypatch, capsys):
    command, damages, match = ROWS[name]
    folder = shutil.copytree(sound, tmp_path / "copy")
    monkeypatch.chdir(folder)
    for path, damage in damages.items():
        damage(folder / path)
    before = m.contents(folder)
    status, message = status_of(command)
    printed = capsys.readouterr()
    message += printed.err
    assert status == 2
    assert re.search(match, message, re.DOTALL), message
    assert "Traceback" not in message + printed.out
    assert m.contents(folder) == before
