"""Damaged inputs and outputs of a run, one of each kind."""

from tests.support import malformed as m
from tests.support.malformed import KERAS, STEP, WEIGHTS

TRAIN = ["train", "tiny.toml", "--output", "out"]
GO_ON = ["train", "tiny.toml"]
EVALUATE = ["evaluate", "run", "--text", "text.txt"]
ARC = ["evaluate", "run", "--tasks", "arc_challenge", "--local", "."]
EXPORT = ["export", "run", "--preset", "out"]
STOCK = ["export", "preset", "--preset", "out"]
REPORT = ["report", "finished", "--output", "page.html"]
ARRAYS, MANIFEST = f"{STEP}/arrays-00000.safetensors", f"{STEP}/manifest.json"
DAMAGED = f"All checkpoints in .* are damaged: of {m.NAME} "


#: By name: the command, the damage by file, the message.
ROWS = {
    "config in UTF-16": (
        TRAIN,
        m.config(m.CONFIG.encode("utf-16")),
        "Cannot read the config 'tiny.toml'",
    ),
    "config cut off": (
        TRAIN,
        m.config("[model]\nmodel_dim ="),
        "tiny.toml: This is not valid TOML: Invalid value",
    ),
    "config endless number": (
        TRAIN,
        m.config("[run]\nseed = " + "9" * 5000),
        "tiny.toml: .*not valid TOML",
    ),
    "config output no run": (
        ["train", "tiny.toml", "--output", "preset", "--overwrite"],
        {},
        "'preset' is no run folder .* never overwritten",
    ),
    "config preset nowhere": (
        TRAIN,
        m.config('[model]\npreset = "nowhere"\n[data]\ntext = "text.txt"'),
        "gives no model to prune: No checkpoint can be loaded from .*: it is neither a "
        "folder here.*Give a KerasHub preset.*Received: preset='nowhere'.",
    ),
    "text missing": (TRAIN, {"text.txt": m.is_gone}, "No text at 'text.txt'"),
    "text binary": (TRAIN, m.text(b"\x89PNG\r\n\x1a\n\0\0"), "'text.txt' is not UTF-8"),
    "text to judge of one byte": (
        EVALUATE,
        m.text("a"),
        "'text.txt' is too short: it has 1 token, ",
    ),
    "zst cut off": (
        m.cache_of("a.jsonl.zst"),
        {"a.jsonl.zst": m.holds(m.TRUNCATED_ZST)},
        r"Cannot read '.*a.jsonl.zst' to its end: .*truncated.*documents .* were read",
    ),
    "parquet that is none": (
        m.cache_of("a.parquet"),
        {"a.parquet": m.holds(b"PAR1 not really PAR1")},
        "a.parquet' to its end: it is no sound parquet file",
    ),
    "line of broken JSON": (
        m.cache_of("a.jsonl"),
        {"a.jsonl": m.holds(m.GOOD_LINES + b'{"text": "cut')},
        "a.jsonl, line 4: broken json",
    ),
    "arrays cut off": (
        GO_ON,
        {ARRAYS: m.cut_off},
        DAMAGED + "arrays-00000.safetensors has been changed or cut off. Restore one",
    ),
    "manifest of other types": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda found: {**found, "arrays": 3, "files": []})},
        DAMAGED + "manifest.json is not one that this package has written",
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
    "checkpoint of another model": (
        GO_ON,
        m.config(m.CONFIG.replace("hidden_dim = 32", "hidden_dim = 36")),
        "another config: model.hidden_dim was 32 there and is 36",
    ),
    "a file for a run": (
        ["export", "text.txt", "--hf", "out"],
        {},
        "No model to export in 'text.txt'",
    ),
    "keras file cut off": (
        EXPORT,
        {KERAS: m.cut_off},
        "narrow.keras' cannot be loaded",
    ),
    "preset config cut off": (
        STOCK,
        {"preset/config.json": m.cut_off},
        "'preset/config.json' is damaged, because it is no JSON",
    ),
    "preset weights cut off": (
        STOCK,
        {WEIGHTS: m.cut_off},
        "The preset 'preset' cannot be loaded",
    ),
    "preset tokenizer broken": (
        STOCK,
        {"preset/assets/tokenizer/vocabulary.json": m.cut_off},
        "The preset 'preset' cannot be loaded",
    ),
    "export over something else": (
        ["export", "run", "--preset", "finished", "--overwrite"],
        {},
        "'finished' is not a KerasHub preset .* never overwritten",
    ),
    "task of broken lines": (
        ARC,
        {"arc_challenge.jsonl": m.holds('{"query": "a"')},
        "Line 1 of 'arc_challenge.jsonl' is no JSON",
    ),
    "report of a broken table": (
        REPORT,
        {"finished/table.json": m.cut_off},
        "table.json' is broken",
    ),
    "report over something else": (
        ["report", "finished", "--output", "text.txt"],
        {},
        "'text.txt' is no report of keras-idea",
    ),
}
