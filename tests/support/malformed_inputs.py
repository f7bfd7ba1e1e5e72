"""Damaged configs, texts and corpora."""

from tests.support import malformed as m
from tests.support.malformed import STEP

TRAIN = ["train", "tiny.toml", "--output", "out"]
GO_ON = ["train", "tiny.toml"]
EVALUATE = ["evaluate", "run", "--text", "text.txt"]
ARRAYS, MANIFEST = f"{STEP}/arrays-00000.safetensors", f"{STEP}/manifest.json"


#: By name: the command, the damage by file, the message.
INPUTS = {
    # Configs.
    "config missing": (
        ["train", "none.toml"],
        {},
        "Cannot read the config 'none.toml'",
    ),
    "config a folder": (["train", "run"], {}, "Cannot read the config 'run'"),
    "config in UTF-16": (
        TRAIN,
        m.config(m.CONFIG.encode("utf-16")),
        "Cannot read the config 'tiny.toml'",
    ),
    "config of NULs": (
        TRAIN,
        m.config(b"\0" * 64),
        "tiny.toml: This is not valid TOML",
    ),
    "config cut off": (
        TRAIN,
        m.config("[model]\nmodel_dim ="),
        "tiny.toml: This is not valid TOML: Invalid value",
    ),
    "config twice the same key": (
        TRAIN,
        m.config("[run]\nseed = 1\nseed = 2\n"),
        "not valid TOML",
    ),
    "config a binary file": (
        TRAIN,
        m.config(m.PARQUET),
        "Cannot read the config 'tiny.toml'.*in UTF-8",
    ),
    "config deeply nested": (
        TRAIN,
        m.config("a = " + "[" * 5000 + "]" * 5000),
        "tiny.toml: This is not valid TOML: maximum recursion",
    ),
    "config endless number": (
        TRAIN,
        m.config("[run]\nseed = " + "9" * 5000),
        "tiny.toml: .*not valid TOML",
    ),
    "config huge number": (
        TRAIN,
        m.config("[budget]\nrecover_steps = 99999999999999999999"),
        r"`budget.recover_steps` must be at most 2147483647. Received: .*999",
    ),
    "config huge batch": (
        TRAIN,
        m.config("[data]\nbatch_size = 9223372036854775808"),
        r"`data.batch_size` must be at most 2147483647. Received: .*808",
    ),
    "config output with NUL": (
        GO_ON,
        m.config('[run]\noutput = "a\\u0000b"'),
        "`run.output` must not hold a NUL",
    ),
    "config infinite rate": (
        TRAIN,
        m.config("[optimizer]\npeak_learning_rate = inf"),
        "`optimizer.peak_learning_rate` must be a number in .*=inf",
    ),
    "config rate no number": (
        TRAIN,
        m.config("[optimizer]\nweight_decay = nan"),
        "`optimizer.weight_decay` must be a number in .*=nan",
    ),
    "config table of tables": (
        TRAIN,
        m.config("[[model]]\nmodel_dim = 8"),
        "`model` must be a table",
    ),
    "config date": (
        TRAIN,
        m.config("[run]\nseed = 2026-01-01"),
        "`run.seed` must be an integer",
    ),
    "config path with NUL": (
        TRAIN,
        m.config('[data]\ntext = "a\\u0000b"'),
        "`data.text` must not hold a NUL",
    ),
    "config unknown key": (
        TRAIN,
        m.config("[model]\nwidth = 8"),
        "Unknown key .*'width'",
    ),
    "config output a file": (
        ["train", "tiny.toml", "--output", "text.txt"],
        {},
        "text.txt' is a file. Give another folder",
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
        m.config('[model]\npreset = "nowhere"\n[data]\ntext = "text.txt"'),
        "gives no model to prune: No checkpoint can be loaded from .*: it is neither a "
        "folder here.*Give a KerasHub preset.*Received: preset='nowhere'.",
    ),
    # Text.
    "text missing": (TRAIN, {"text.txt": m.is_gone}, "No text at 'text.txt'"),
    "text empty": (TRAIN, m.text(""), "There is no text"),
    "text binary": (
        TRAIN,
        m.text(b"\x89PNG\r\n\x1a\n\0\0"),
        "Cannot read",
    ),
    "text in Latin-1": (
        TRAIN,
        m.text("Grüße ".encode("latin-1") * 50),
        "UnicodeDecodeError",
    ),
    "text too short": (
        TRAIN,
        m.text("too short"),
        "text.txt.* has 7 bytes; .* at least 17",
    ),
    "text a folder of nothing": (TRAIN, {"text.txt": m.is_a_folder}, "No text in 'tex"),
    "text to judge missing": (
        ["evaluate", "run", "--text", "none.txt"],
        {},
        "No text at 'none.txt'",
    ),
    "text to judge compressed": (
        EVALUATE,
        m.text(m.TRUNCATED_GZ),
        "UnicodeDecodeError",
    ),
    "text to judge of one byte": (
        EVALUATE,
        m.text("a"),
        "'text.txt' is too short: it has 1 token, ",
    ),
}
