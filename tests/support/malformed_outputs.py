"""Damaged checkpoints, models, reports and tables."""

from tests.support import malformed as m
from tests.support.malformed import KERAS, STEP, WEIGHTS

GO_ON = ["train", "tiny.toml"]
EVALUATE = ["evaluate", "run", "--text", "text.txt"]
JUDGE = ["evaluate", "preset", "--text", "text.txt"]
EXPORT = ["export", "run", "--preset", "out"]
STOCK = ["export", "preset", "--preset", "out"]
REPORT = ["report", "finished", "--output", "page.html"]
ARRAYS, MANIFEST = f"{STEP}/arrays-00000.safetensors", f"{STEP}/manifest.json"
DAMAGED = f"All checkpoints in .* are damaged: of {m.NAME} "


#: By name: the command, the damage by file, the message.
OUTPUTS = {
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
        m.NAME + ": its manifest says 'epochs': None",
    ),
    "manifest without FFNs": (
        GO_ON,
        {
            MANIFEST: m.manifest_with(
                lambda found: found["facts"]["model"].update(ffns=[{}])
            )
        },
        m.NAME + ": The checkpoint tells of no FFNs",
    ),
    "manifest of absurd epochs": (
        GO_ON,
        {MANIFEST: m.manifest_with(lambda found: found["facts"].update(epochs=-7))},
        m.NAME + ": its manifest says 'epochs': -7",
    ),
    "manifest of callbacks that are none": (
        GO_ON,
        {
            MANIFEST: m.manifest_with(
                lambda found: found["facts"].update(callbacks=[{"kind": 3}])
            )
        },
        m.NAME + ": its manifest says 'callbacks'",
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
        m.NAME + ": arrays-00000.safetensors does not hold what",
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
        m.text(m.TEXT.replace("quick", "quiet")),
        "are of another run: text was",
    ),
    "checkpoint of another model": (
        GO_ON,
        m.config(m.CONFIG.replace("hidden_dim = 32", "hidden_dim = 36")),
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
        "'preset/config.json' is damaged, because it is no JSON",
    ),
    "preset config no JSON": (
        JUDGE,
        {"preset/config.json": m.holds("model = llama")},
        "'preset/config.json' is damaged, because it is no JSON",
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
}
