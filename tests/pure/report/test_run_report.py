"""The report of runs: what it reads, what it writes, what it refuses."""

import base64
import html
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import rich.console
from matplotlib.image import imread

from keras_idea.errors import ReportRefused, RunRecordError
from keras_idea.lm.cli import main
from keras_idea.lm.report.page import MARK, report_page
from keras_idea.lm.report.report import report
from keras_idea.lm.report.run_record import read_run, read_runs
from keras_idea.lm.report.widths import curves_of
from tests.support.full_disk import full_disk
from tests.support.report_runs import write_elastic_run, write_run


class Page(HTMLParser):
    """The cells, pictures, tags and addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.pictures, self.tags, self.addresses = [], [], [], []
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        self.addresses += [v for k, v in values.items() if k in ("src", "href")]
        if tag == "img":
            head, data = values["src"].split(",")
            assert head == "data:image/png;base64" and values["alt"]
            self.pictures.append(imread(io.BytesIO(base64.b64decode(data))))
        if tag in ("td", "th"):
            self.cells.append("")
            self._open = tag

    def handle_data(self, data):
        if self._open:
            self.cells[-1] += data

    def handle_endtag(self, tag):
        if tag == self._open:
            self._open = None


def quiet():
    return rich.console.Console(file=io.StringIO(), width=80)


@pytest.fixture
def runs(tmp_path):
    return [
        write_run(tmp_path / "a" / "one"),
        write_run(tmp_path / "two <&>", method="random", floor=2.5),
    ]


class TestRead:
    def test_a_run(self, runs):
        record = read_run(runs[0])
        assert record.name == "one" and record.facts["backend"] == "jax"
        assert record.settings["model.hidden_dim"] == 64
        assert [row.bits_per_byte for row in record.rows] == [2.5, 2.1, 2.2]
        assert record.rows[2].generation_speed is None
        first, second = record.curves
        assert (first.name, second.name) == ("pruned", "narrow from scratch")
        assert first.steps.tolist() == list(range(1, 61))
        assert first.width[[0, -1]].tolist() == [64, 24]
        assert first.validation == {30: 2.5, 60: 2.1}
        np.testing.assert_allclose(first.loss[9], 2 + 4 * np.exp(-0.5), atol=1e-5)
        assert first.perplexity == {30: 6.5, 60: 4.5} and second.perplexity == {}
        perplexities = [row.perplexity_per_token for row in record.rows]
        assert perplexities == [6.5, 4.5, None]

    def test_a_run_of_an_earlier_version(self, runs):
        """Its rows tell the perplexity per byte, and its metrics none."""
        table, metrics = (runs[0] / name for name in ("table.json", "metrics.csv"))
        told = json.loads(table.read_text())
        for row in told["rows"]:
            row["perplexity"] = row.pop("perplexity_per_token")
        table.write_text(json.dumps(told))
        lines = [line.rpartition(",")[0] for line in metrics.read_text().splitlines()]
        metrics.write_text("\n".join(lines) + "\n")
        record = read_run(runs[0])
        assert [row.perplexity_per_token for row in record.rows] == [None] * 3
        assert record.rows[0].bits_per_byte == 2.5
        assert record.curves[0].perplexity == {}
        assert record.curves[0].validation == {30: 2.5, 60: 2.1}

    def test_runs_that_are_called_alike(self, tmp_path, runs):
        other = write_run(tmp_path / "b" / "one")
        names = [record.name for record in read_runs([runs[0], other, runs[1]])]
        assert names == [str(runs[0]), str(other), "two <&>"]

    @pytest.mark.parametrize(
        "name, content, match",
        [
            ("config.toml", b"[model", r"config.toml' is broken"),
            ("config.toml", b"key = 1", "a key outside of the tables"),
            ("config.toml", b"\xff\xfe", "is broken .*decode"),
            ("table.json", b'{"rows": [', "table.json' is broken"),
            ("table.json", b"[]", "it holds no rows"),
            ("table.json", b'{"rows": []}', "its table is empty"),
            ("table.json", b'{"rows": [{"name": "x"}]}', r"no 'parameters'"),
            ("table.json", b'{"rows": ["x"]}', "table.json' is broken"),
            ("metrics.csv", b"", "it has no line of numbers"),
            ("metrics.csv", b"run,step\npruned,1\n", "line 2: 'bits_per_byte'"),
            ("run.png", b"\x89PNG\r\n\x1a\n and then nothing", "no whole PNG picture"),
            ("run.png", b"", "no whole PNG picture"),
        ],
    )
    def test_broken_files(self, runs, name, content, match):
        (runs[0] / name).write_bytes(content)
        with pytest.raises(RunRecordError, match=match):
            read_run(runs[0])

    def test_a_table_of_texts_is_no_table(self, runs):
        path = runs[0] / "table.json"
        path.write_text(path.read_text().replace("1234567", '"many"', 1))
        with pytest.raises(RunRecordError, match="a row that is no result.*many"):
            read_run(runs[0])

    def test_a_line_that_is_cut_off(self, runs):
        path = runs[0] / "metrics.csv"
        path.write_text(path.read_text()[:-20])
        with pytest.raises(RunRecordError, match="metrics.csv' is broken .line 121"):
            read_run(runs[0])

    def test_no_run_and_an_unfinished_one(self, tmp_path, runs):
        with pytest.raises(RunRecordError, match="there is no such folder"):
            read_run(tmp_path / "nowhere")
        with pytest.raises(RunRecordError, match="it has no config.toml"):
            read_run(tmp_path)
        (runs[0] / "table.json").unlink()
        with pytest.raises(RunRecordError, match="not finished: it has no table.json"):
            read_run(runs[0])
        with pytest.raises(RunRecordError, match="is given twice"):
            read_runs([runs[1], tmp_path / "a" / ".." / "two <&>"])


class TestPage:
    def test_holds_everything(self, tmp_path, runs):
        path = report(runs, tmp_path / "new" / "page.html", quiet())
        page = Page(path.read_text())
        for cell in ("1,234,567", "2.100", "2.600", "4.50", "4.2", "one", "two <&>"):
            assert cell in page.cells, cell
        assert {"pruning.method", "sensitivity", "random"} <= set(page.cells)
        # Both runs, and their curves in one picture.
        assert len(page.pictures) == 3
        assert all(picture.std() > 0.01 for picture in page.pictures)
        (own,) = [p for p in page.pictures if p.shape[:2] == (650, 1100)]
        assert len(np.unique(own.reshape(-1, own.shape[-1]).round(1), axis=0)) > 8

    def test_nothing_is_loaded_from_elsewhere(self, tmp_path, runs):
        text = report_page(read_runs(runs), "a title")
        page = Page(text)
        assert all(address.startswith("data:") for address in page.addresses)
        assert not {"script", "iframe", "object"} & set(page.tags)
        assert page.tags.count("link") == 1  # the icon, which is empty
        assert "url(" not in text and "@import" not in text

    def test_a_run_of_several_widths_beside_another(self, tmp_path, runs):
        """A curve for each width: the steps at it, and its own held-out figures."""
        path = write_elastic_run(tmp_path / "widths")
        found = dict(curves_of(read_run(path)))
        assert list(found) == [f"widths: {n}" for n in ("full", "small", "medium")]
        small, medium = found["widths: small"], found["widths: medium"]
        assert small.validation == {30: 2.9, 60: 2.7} and set(small.width) == {8}
        assert medium.validation == {30: 2.6, 60: 2.4} and set(medium.width) == {32}
        assert list(medium.steps[:3]) == [3, 6, 9]
        text = report_page(read_runs([runs[0], path]), "title")
        assert "The trained models" in text and len(Page(text).pictures) == 3

    def test_a_sandwich_has_losses_of_all_widths_together(self, tmp_path):
        path = write_elastic_run(tmp_path / "widths", "sandwich")
        *widths, (name, mean) = curves_of(read_run(path))
        assert name == "widths: mean of widths" and len(mean.steps) == 60
        assert [len(curve.steps) for _, curve in widths] == [0, 0, 0]
        assert widths[1][1].validation == {30: 2.9, 60: 2.7}

    def test_texts_are_escaped(self, runs):
        text = report_page(read_runs(runs), "<i>&")
        assert "<title>&lt;i&gt;&amp;</title>" in text
        assert "two &lt;&amp;&gt;" in text and "two <&>" not in text
        assert html.escape("<script>x()</script>") in text
        assert "<b>" not in text

    def test_differing_settings_are_marked(self, runs):
        text = report_page(read_runs(runs), "title")
        marked = re.findall(r'<tr class="differs"><td class="text">([\w.]+)', text)
        assert marked == ["pruning.method"]

    def test_one_run_has_no_comparison(self, runs):
        text = report_page(read_runs(runs[:1]), "title")
        assert len(Page(text).pictures) == 1 and 'class="differs"' not in text

    def test_many_runs(self, tmp_path):
        runs = [write_run(tmp_path / f"run{i}", floor=2 + i / 9) for i in range(9)]
        assert len(Page(report_page(read_runs(runs), "title")).pictures) == 10


class TestCommand:
    def test_writes_and_prints(self, tmp_path, runs, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        for _ in range(2):  # an earlier report is replaced
            assert main(["report", *map(str, runs)]) == 0
            out = capsys.readouterr().out
            assert "one (jax, Linux x86_64)" in out and "two <&>" in out
            assert "2.600" in out and "The page is report.html" in out
        assert (tmp_path / "report.html").read_text().startswith(MARK)
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            "a",
            "report.html",
            "two <&>",
        ]

    @pytest.mark.parametrize(
        "output, match",
        [
            ("mine.html", "is no report of keras-idea and is never overwritten"),
            ("a", "'a' is a folder"),
            ("mine.html/page.html", "'mine.html' is a file"),
        ],
    )
    def test_refused_places(self, tmp_path, runs, monkeypatch, capsys, output, match):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.html").write_text("<html>my thesis</html>")
        assert main(["report", "a/one", "--output", output]) == 2
        captured = capsys.readouterr()
        assert match in captured.err and captured.err.count("\n") == 1
        assert (tmp_path / "mine.html").read_text() == "<html>my thesis</html>"

    def test_refused_runs(self, tmp_path, runs, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["report", "a/one", "a"]) == 2
        assert "'a' is no run folder: it has no config.toml" in capsys.readouterr().err
        assert not (tmp_path / "report.html").exists()

    def test_a_write_that_fails_leaves_the_old_page(self, tmp_path, runs):
        path = report(runs[:1], tmp_path / "page.html", quiet())
        before = path.read_bytes()
        names = sorted(p.name for p in tmp_path.iterdir())
        with full_disk(4096):
            with pytest.raises(ReportRefused, match="be written: File too large"):
                report(runs, path, quiet())
        assert path.read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == names

    def test_help(self, capsys):
        with pytest.raises(SystemExit, match="0"):
            main(["report", "--help"])
        assert "RUN" in capsys.readouterr().out
