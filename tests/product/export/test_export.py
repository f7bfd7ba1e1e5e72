"""Exports: loaded back by others, refused with a reason, or nothing left of them."""

import json
import pathlib

import pytest

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_preset, load_run
from keras_idea.lm.export import preset, target
from keras_idea.lm.export.load import find_model
from keras_idea_cli import main
from tests.support.exports import broken, listing, own_decoder


class TestNothingIsLeft:
    """An export that fails leaves what there was, and nothing of its own."""

    def test_failed_check(self, lm, tmp_path, monkeypatch):
        broken(monkeypatch, preset)
        path = tmp_path / "not/yet/there"
        with pytest.raises(ExportFailed, match=r"differ by 0.5, allowed are \d"):
            export_preset(lm, path)
        assert listing(tmp_path) == []

    def test_failed_check_keeps_the_earlier_one(self, lm, run, monkeypatch):
        before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
        broken(monkeypatch, preset)
        with pytest.raises(ExportFailed):
            export_preset(lm, run / "preset", overwrite=True)
        assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before

    def test_other_tokenizer(self, lm, tmp_path, monkeypatch):
        monkeypatch.setattr(preset, "first_difference", lambda *encodes: "'x'.")
        with pytest.raises(ExportFailed, match="tokenizer is another one: 'x'."):
            export_preset(lm, tmp_path / "preset")
        assert listing(tmp_path) == []

    def test_overwrite_replaces(self, lm, tmp_path):
        for name in ("config.json", "metadata.json", "model_00000.weights.h5"):
            (tmp_path / "preset").mkdir(exist_ok=True)
            (tmp_path / "preset" / name).write_text("earlier")
        with pytest.raises(ExportRefused, match="exists already"):
            export_preset(lm, tmp_path / "preset")
        export_preset(lm, tmp_path / "preset", overwrite=True)
        names = [path.name for path in (tmp_path / "preset").iterdir()]
        assert "model_00000.weights.h5" not in names and "model.weights.h5" in names
        assert [path.name for path in tmp_path.iterdir()] == ["preset"]


class TestTarget:
    KIND = target.ExportKind(
        "a thing", names=("config.json", "*.h5"), marks=("config.json",)
    )
    FILE = target.ExportKind("a file", suffix=".onnx")

    @pytest.mark.parametrize(
        "path, match",
        [
            ("", "needs a path"),
            ("file", r"is not a thing \(it is a file\)"),
            ("file/below", "'.*file' is a file"),
            ("mine", r"is not a thing \(it holds 'notes.txt'\) and is never"),
            ("half", r"is not a thing \(it has no 'config.json'\)"),
        ],
    )
    def test_what_others_own_is_refused(self, tmp_path, monkeypatch, path, match):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").write_text("x")
        for file in ("mine/config.json", "mine/notes.txt", "half/model.h5"):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text("x")
        with pytest.raises(ExportRefused, match=match):
            target.check_target(path, self.KIND, overwrite=True)

    def test_what_is_free_is_not(self, tmp_path):
        (tmp_path / "empty").mkdir()
        for name in ("new", "new/deep", "empty"):
            target.check_target(tmp_path / name, self.KIND)
        target.check_target(tmp_path / "x.onnx", self.FILE)

    def test_files(self, tmp_path):
        (tmp_path / "x.onnx").write_text("earlier")
        (tmp_path / "y.onnx").mkdir()
        for name, match in [
            ("x.on", "ends in '.onnx'"),
            ("x.onnx", "exists already"),
            ("y.onnx", "it is a folder"),
        ]:
            with pytest.raises(ExportRefused, match=match):
                target.check_target(tmp_path / name, self.FILE)
        with target.replacing_target(tmp_path / "x.onnx") as temporary:
            temporary.write_text("new")
        assert (tmp_path / "x.onnx").read_text() == "new"

    def test_no_room_is_told(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(ExportRefused, match="below' cannot be written: .*file"):
            with target.replacing_target(tmp_path / "file" / "below"):
                pass


class TestLoad:
    def test_run_and_preset_folder(self, lm, run):
        for folder in (run, run / "preset"):
            loaded = load_run(folder)
            assert type(loaded) is type(lm) and loaded.compute_dtype == "float32"

    def test_a_handle_is_no_place(self, tmp_path, monkeypatch):
        """As `hub.load` takes it; a folder of that name comes first."""
        monkeypatch.chdir(tmp_path)
        for handle in ("gemma3_270m", "hf://user/name"):
            assert find_model(handle) == handle
        pathlib.Path("gemma3_270m").mkdir()
        with pytest.raises(ExportRefused, match="neither a run folder nor a preset"):
            find_model("gemma3_270m")

    @pytest.mark.parametrize(
        "files, match",
        [
            (None, "there is no such folder"),
            ([], "neither a run folder nor a preset"),
            (["config.toml"], "its run has not come to its end"),
            (["narrow.keras"], "narrow.keras' cannot be loaded"),
            (["config.json", "model.weights.h5"], "cannot be loaded"),
        ],
    )
    def test_refused(self, tmp_path, files, match):
        folder = tmp_path / "run"
        if files is not None:
            folder.mkdir()
        for name in files or ():
            (folder / name).write_text("{}")
        with pytest.raises(ExportRefused, match=match):
            load_run(folder)


class TestCommandLine:
    def test_preset_of_a_run(self, run, tmp_path, capsys):
        assert main(["export", str(run), "--preset", str(tmp_path / "out")]) == 0
        printed = capsys.readouterr().out
        assert "a KerasHub preset, Llama3CausalLM; loaded back: logits" in printed
        assert json.loads((tmp_path / "out/config.json").read_text())

    def test_hugging_face_of_our_decoder(self, tmp_path, capsys):
        (tmp_path / "run").mkdir()
        own_decoder().save(tmp_path / "run/narrow.keras")
        arguments = ["export", str(tmp_path / "run"), "--hf", str(tmp_path / "hf")]
        assert main(arguments) == 0
        assert "32 greedy tokens equal" in capsys.readouterr().out
        assert main(arguments) == 2
        assert "exists already" in capsys.readouterr().err
        assert main([*arguments, "--overwrite"]) == 0

    def test_a_length_of_0(self, run, tmp_path, capsys):
        arguments = ["--gguf", str(tmp_path / "a.gguf"), "--length", "0"]
        assert main(["export", str(run), *arguments]) == 2
        assert "`length` must be" in capsys.readouterr().err
        assert listing(tmp_path) == []

    def test_a_failed_check_is_status_1(self, run, tmp_path, capsys, monkeypatch):
        broken(monkeypatch, preset)
        assert main(["export", str(run), "--preset", str(tmp_path / "out")]) == 1
        captured = capsys.readouterr()
        assert "keras-idea: The export computes other logits" in captured.err
        assert captured.out == "" and listing(tmp_path) == []

    @pytest.mark.parametrize(
        "arguments, match",
        [
            (["none", "--hf", "out"], "No model to export in 'none'"),
            (["none", "--hf", "out", "--length", "64"], "`--length` is for --onnx"),
        ],
    )
    def test_refused(self, tmp_path, monkeypatch, capsys, arguments, match):
        monkeypatch.chdir(tmp_path)
        assert main(["export", *arguments]) == 2
        captured = capsys.readouterr()
        assert match in captured.err and captured.err.count("\n") == 1
        assert captured.out == "" and listing(tmp_path) == []

    @pytest.mark.parametrize("formats", [[], ["--hf", "a", "--preset", "b"]])
    def test_one_format_at_a_time(self, formats, capsys):
        with pytest.raises(SystemExit, match="2"):
            main(["export", "run", *formats])
        assert "--preset" in capsys.readouterr().err
