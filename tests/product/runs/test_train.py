"""A whole tiny run through the command line, and what is refused before one."""

import csv
import json

import keras
import numpy as np
import pytest
from matplotlib.image import imread

import keras_idea as ki
from keras_idea.data import open_text
from keras_idea.errors import RunFolderError
from keras_idea.files import TEMPORARY
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import load_config, parse_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.config.timeline import make_timeline
from keras_idea.lm.runs.run_folder import FILES, RunFolder
from tests.support.helpers import to_numpy
from tests.support.tiny_run import CONFIG, ONE_LAYER, TEXT, run_in, write_inputs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of one tiny run, made through the command line."""
    return run_in(tmp_path_factory.mktemp("run"), CONFIG)[0]


def validation_bits(model, folder):
    """Bits per byte of a model on the text the run held out."""
    corpus = open_text(paths=folder.parent.parent / "text.txt", validation_fraction=0.2)
    x, y = corpus.held_out_windows(16, limit=8)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return float(keras.ops.convert_to_numpy(loss(y, model(x)))) / np.log(2.0)


class TestRun:
    def test_leaves_every_file(self, run):
        of_several_widths = {"full.keras", "widths.json"}
        left = {path.name for path in run.iterdir()}
        assert left == set(FILES) - of_several_widths

    def test_config_is_the_one_that_ran(self, run):
        config = load_config(run / "config.toml")
        assert config.model.hidden_dim == 32 and config.run.output == "runs/tiny"

    def test_narrow_model_is_narrow(self, run):
        model = keras.models.load_model(run / "narrow.keras")
        layers = list(model._flatten_layers())
        plain = [layer for layer in layers if isinstance(layer, ki.GatedFFN)]
        assert [layer.hidden_dim for layer in plain] == [8, 8]
        assert not any(isinstance(layer, ki.PrunableGatedFFN) for layer in layers)
        # Embedding and logits, final norm; two norms, attention, FFN a layer.
        assert model.count_params() == 2 * 256 * 16 + 16 + 2 * (
            2 * 16 + 4 * 16 * 16 + 3 * 16 * 8
        )

    def test_table_tells_of_the_saved_model(self, run):
        rows = json.loads((run / "table.json").read_text())["rows"]
        wide, pruned, scratch = rows
        model = keras.models.load_model(run / "narrow.keras")
        assert pruned["bits_per_byte"] == pytest.approx(
            validation_bits(model, run), abs=1e-4
        )
        assert pruned["parameters"] == scratch["parameters"] == model.count_params()
        assert wide["parameters"] - pruned["parameters"] == 2 * 3 * 16 * (32 - 8)
        for row in rows:
            # A token is a byte.
            perplexity = 2 ** row["bits_per_byte"]
            assert row["perplexity_per_token"] == pytest.approx(perplexity)
            assert row["step_ms"] > 0 and row["generation_speed"] > 0
        lines = (run / "table.md").read_text().splitlines()
        assert len(lines) == 4 + len(rows) + 3  # the legend, a line, two sentences
        bits = {row["name"]: round(row["bits_per_byte"], 3) for row in rows}
        gain = bits["narrow from scratch"] - bits["pruned"]
        how = f"{'better' if gain > 0 else 'worse'} by {abs(gain):.3f}. It took more"
        assert lines[-2].startswith(f"Pruned {bits['pruned']:.3f}, narrow from scratch")
        assert how in lines[-2] or abs(gain) < 5e-4

    def test_metrics(self, run):
        with open(run / "metrics.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        pruned, scratch = lines[:12], lines[12:]
        assert [line["run"] for line in lines[::12]] == [
            "pruned",
            "narrow from scratch",
        ]
        width = ki.CubicWidth(32, 8, begin_step=4, prune_steps=3)
        assert [int(line["width"]) for line in pruned] == [
            width(step) for step in range(1, 13)
        ]
        assert {line["width"] for line in scratch} == {"8"}
        rate = load_config(run / "config.toml").optimizer.peak_learning_rate
        assert float(pruned[2]["learning_rate"]) == pytest.approx(rate)
        for both in zip(pruned, scratch, strict=True):
            assert both[0]["learning_rate"] == both[1]["learning_rate"]
            # An untrained model knows 8 bits of nothing.
            assert all(4.0 < float(line["bits_per_byte"]) < 9.0 for line in both)
        measured = [line["step"] for line in pruned if line["validation"]]
        assert measured == ["4", "8", "12"]
        rows = json.loads((run / "table.json").read_text())["rows"]
        shown = [pruned[3], pruned[11], scratch[11]]
        for row, line in zip(rows, shown, strict=True):
            assert float(line["validation"]) == pytest.approx(
                row["bits_per_byte"], abs=1e-4
            )

    def test_picture(self, run):
        pixels = imread(run / "run.png")
        assert pixels.shape[1] == 1200 and pixels.std() > 0.05

    def test_sample_continues_the_prompt(self, run):
        text = (run / "sample.txt").read_text()
        assert text.startswith("the ") and len(text.encode()) >= 24

    def test_a_report_can_be_made_of_it(self, run, tmp_path, capsys):
        page = tmp_path / "report.html"
        assert main(["report", str(run), "--output", str(page)]) == 0
        rows = json.loads((run / "table.json").read_text())["rows"]
        for text in (page.read_text(), capsys.readouterr().out):
            assert all(f"{row['bits_per_byte']:.3f}" in text for row in rows)

    def test_second_run_is_refused(self, run, capsys, monkeypatch):
        monkeypatch.chdir(run.parent.parent)
        before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
        assert main(["train", "tiny.toml"]) == 2
        captured = capsys.readouterr()
        assert "holds a run already" in captured.err and "--overwrite" in captured.err
        assert "Traceback" not in captured.err and captured.out == ""
        assert {p: p.stat().st_mtime_ns for p in run.iterdir()} == before

    @pytest.mark.parametrize("compact", ["off", "progressive"])
    def test_without_comparison(self, tmp_path, monkeypatch, compact):
        # Also masked to the end: what is saved is narrow all the same.
        write_inputs(
            tmp_path,
            CONFIG.replace("recover_steps = 5", "recover_steps = 1")
            .replace('prompt = "the "', "")
            # Less to validate on than a prompt may be long.
            .replace("sequence_length = 16", "sequence_length = 8")
            .replace("validation_fraction = 0.2", "validation_fraction = 0.005")
            + f"compare_from_scratch = false\n[pruning]\ncompact = '{compact}'\n",
        )
        monkeypatch.chdir(tmp_path)
        assert main(["train", "tiny.toml", "--output", "here"]) == 0
        rows = json.loads((tmp_path / "here/table.json").read_text())["rows"]
        assert [row["name"] for row in rows] == ["wide before pruning", "pruned"]
        model = keras.models.load_model(tmp_path / "here/narrow.keras")
        widths = {ki.GatedFFN: [8, 8], ki.PrunableGatedFFN: []}
        for kind, expected in widths.items():
            layers = [x for x in model._flatten_layers() if isinstance(x, kind)]
            assert [layer.hidden_dim for layer in layers] == expected
        # It was given no prompt: it goes on from a piece of the text itself.
        assert (tmp_path / "here/sample.txt").read_text()[:8] in TEXT


def test_a_refit_changes_what_reads_the_neurons(tmp_path):
    rates = "peak_learning_rate = 1e-12\nend_learning_rate = 1e-12\n"
    config = ONE_LAYER.replace("[optimizer]\n", f"[optimizer]\n{rates}")
    found = []
    for windows in (0, 32):
        how = f"[pruning]\nmethod = 'random'\nrefit_windows = {windows}\n"
        folder, _ = run_in(tmp_path, config + how, f"with_{windows}")
        found.append(keras.models.load_model(folder / "narrow.keras"))
    differs = [
        one.path.split("/")[-1]
        for one, other in zip(*(model.weights for model in found), strict=True)
        if not np.allclose(to_numpy(one), to_numpy(other), atol=1e-6)
    ]
    assert differs == ["down_kernel"]


def test_where_the_picture_shows_the_model_become_narrow():
    rest = "[budget]\nenlarge_steps = 10\nprune_steps = 20\n"
    rest += "[optimizer]\nwarmup_steps = 0\n[run]\nvalidate_every = 10\n[pruning]\n"

    def steps_of(compact, method):
        config = parse_config(f"{rest}method = '{method}'\ncompact = '{compact}'")
        timeline = make_timeline(config, Sizes(32), Sizes(8), here=False)
        return list(timeline.compactions)

    steps = {
        (compact, method): steps_of(compact, method)
        for compact in ("off", "end", "progressive")
        for method in ("sensitivity", "activation", "learned_mask")
    }
    for method, end in (("sensitivity", 30), ("activation", 10), ("learned_mask", 30)):
        assert steps["off", method] == [] and steps["end", method] == [end]
        assert steps["progressive", method][-1] == end
    assert steps["progressive", "sensitivity"] == [11, 12, 13, 14, 16, 18, 20, 30]
    assert len(steps["progressive", "activation"]) == 1


class TestCommandLine:
    """What is refused is refused in one line, before any work."""

    @pytest.mark.parametrize(
        "arguments, edit, match",
        [
            (["none.toml"], None, "Cannot read the config 'none.toml'"),
            (["tiny.toml"], ("seed", "sed"), "tiny.toml: Unknown key in [run]: 'sed'"),
            (["tiny.toml"], ("text.txt", "no.txt"), "No text at 'no.txt'"),
            (
                ["tiny.toml"],
                ("sequence_length = 16", "sequence_length = 3000"),
                "sequence of 3,000 bytes needs at least 3001",
            ),
            (
                ["tiny.toml", "--overwrite"],
                ('text = "text.txt"', 'text = "."'),
                "`data.text` must not be a folder that holds what the run writes",
            ),
            (["tiny.toml", "--output", "text.txt"], None, "text.txt' is a file"),
            (["tiny.toml", "--output", ""], None, "`run.output` must be a non-empty"),
            (["tiny.toml", "--output", ".", "--overwrite"], None, "is no run folder"),
        ],
    )
    def test_refused(self, tmp_path, monkeypatch, capsys, arguments, edit, match):
        write_inputs(tmp_path, CONFIG.replace(*edit) if edit else CONFIG)
        monkeypatch.chdir(tmp_path)
        assert main(["train", *arguments]) == 2
        captured = capsys.readouterr()
        assert match in captured.err and captured.err.count("\n") == 1
        assert captured.out == ""
        assert sorted(p.name for p in tmp_path.iterdir()) == ["text.txt", "tiny.toml"]

    def test_divergence_is_told(self, tmp_path, monkeypatch, capsys):
        write_inputs(
            tmp_path,
            CONFIG.replace(
                "warmup_steps = 2", "warmup_steps = 0\npeak_learning_rate = 1e38"
            ),
        )
        monkeypatch.chdir(tmp_path)
        assert main(["train", "tiny.toml"]) == 1
        assert "Lower `optimizer.peak_learning_rate`" in capsys.readouterr().err

    def test_help(self, capsys):
        with pytest.raises(SystemExit, match="0"):
            main(["train", "--help"])
        assert "CONFIG.toml" in capsys.readouterr().out


def left_by_a_kill(folder, name):
    """The temporary path of a file or folder, as a killed run leaves it behind."""
    room = folder.path / f"{TEMPORARY}{name}"
    room.mkdir()
    return room / name


class TestRunFolder:
    def fill(self, path, *names):
        path.mkdir()
        for name in names:
            (path / name).write_text(name)
        return RunFolder(path)

    def test_overwrite_replaces_a_run(self, tmp_path):
        folder = self.fill(tmp_path / "run", "config.toml", "run.png")
        left_by_a_kill(folder, "run.png").write_text("half")
        with pytest.raises(RunFolderError, match="holds a run already"):
            folder.check()
        folder.check(overwrite=True)
        folder.claim("new")
        assert [path.name for path in folder.path.iterdir()] == ["config.toml"]
        assert (folder.path / "config.toml").read_text() == "new"

    def test_a_preset_is_a_folder_that_is_written_whole(self, tmp_path):
        folder = self.fill(tmp_path / "run", "config.toml")
        for text in ("old", "new"):
            with folder.replacing("preset") as path:
                path.mkdir()
                (path / text).write_text(text)
        with pytest.raises(OSError, match="disk"):
            with folder.replacing("preset") as path:
                path.mkdir()
                (path / "half").write_text("half")
                raise OSError("disk full")
        assert [path.name for path in (folder.path / "preset").iterdir()] == ["new"]
        assert len(list(folder.path.iterdir())) == 2
        left_by_a_kill(folder, "preset").mkdir()
        earlier = folder.path / f"{TEMPORARY}aside" / TEMPORARY / "preset"
        earlier.mkdir(parents=True)
        folder.check(overwrite=True)
        folder.claim("new")
        assert [path.name for path in folder.path.iterdir()] == ["config.toml"]
        assert (folder.path / "config.toml").read_text() == "new"

    def test_what_a_killed_run_left_goes_when_the_run_ends(self, tmp_path):
        folder = self.fill(tmp_path / "run", "config.toml")
        left_by_a_kill(folder, "run.png").write_text("half")
        (folder.path / ".tmp-mine").mkdir()
        (folder.path / ".tmp-mine" / "thesis.tex").write_text("mine")
        folder.remove_checkpoints()
        names = sorted(path.name for path in folder.path.iterdir())
        assert names == [".tmp-mine", "config.toml"]
        with pytest.raises(RunFolderError, match="it holds '.tmp-mine'"):
            folder.check(overwrite=True)

    def test_a_linked_preset_is_not_ours(self, tmp_path):
        (tmp_path / "mine").mkdir()
        folder = self.fill(tmp_path / "run", "config.toml")
        (folder.path / "preset").symlink_to(tmp_path / "mine")
        with pytest.raises(RunFolderError, match="it holds 'preset'"):
            folder.check(overwrite=True)

    @pytest.mark.parametrize(
        "names", [["config.toml", "thesis.tex"], ["run.png"], ["thesis.tex"]]
    )
    def test_never_anything_else(self, tmp_path, names):
        folder = self.fill(tmp_path / "run", *names)
        with pytest.raises(RunFolderError, match="is no run folder"):
            folder.check(overwrite=True)

    def test_empty_and_new_folders_are_taken(self, tmp_path):
        self.fill(tmp_path / "empty").check()
        folder = RunFolder(tmp_path / "a/b/c")
        folder.check()
        folder.claim("new")
        assert [path.name for path in folder.path.iterdir()] == ["config.toml"]

    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        folder = self.fill(tmp_path / "run", "table.md")
        with pytest.raises(OSError, match="disk"):
            with folder.replacing("table.md") as path:
                path.write_text("half")
                raise OSError("disk full")
        assert (folder.path / "table.md").read_text() == "table.md"
        assert len(list(folder.path.iterdir())) == 1
