"""A run reads nothing that it writes, and deletes nothing that it reads."""

import pytest

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.places import check_file, check_places

HUB = "[model]\nhub = 'llama3'\n"
CHAT = f"{HUB}[chat]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Folders of text, a finished run, and links that lead to them."""
    for name in ("texts/one", "runs/a/preset", "runs/a/checkpoints", "data"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("texts/one/a.txt", "runs/a/sample.txt", "runs/a/config.toml"):
        (tmp_path / name).write_text("text")
    (tmp_path / "link").symlink_to("runs/a")
    (tmp_path / "everything").symlink_to(".")
    (tmp_path / "texts/away").symlink_to("../data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# A run's tables, and the key that the message names.
REFUSED = {
    "preset": ("[model]\npreset = 'runs/a/preset'\n", "model.preset"),
    "preset that is not there yet": (
        "[model]\npreset = 'runs/a/preset/x'\n",
        "model.preset",
    ),
    "preset through a link": ("[model]\npreset = 'link/preset'\n", "model.preset"),
    "teacher": ("[distillation]\nteacher = 'runs/a'\n", "distillation.teacher"),
    "teacher in another way": (
        "[distillation]\nteacher = 'texts/../runs/./a/preset'\n",
        "distillation.teacher",
    ),
    "text of the run": ("[data]\ntext = 'runs/a/sample.txt'\n", "data.text"),
    "the run as text": ("[data]\ntext = 'runs/a'\n", "data.text"),
    "text around the run": ("[data]\ntext = '.'\n", "data.text"),
    "text above": ("[data]\ntext = 'runs'\n", "data.text"),
    "text through a link": ("[data]\ntext = 'everything'\n", "data.text"),
    "documents": ("[corpus]\npaths = ['texts', '.']\n", "corpus.paths"),
    "documents held out": (
        "[corpus]\npaths = 'texts'\nvalidation_paths = 'runs'\n",
        "corpus.validation_paths",
    ),
    "documents by a pattern": (
        "[corpus]\npaths = '.'\npattern = '*.md'\n",
        "corpus.paths",
    ),
    "a folder of a data set": ("[corpus]\ndataset = './runs'\n", "corpus.dataset"),
    "cache": ("[corpus]\npaths = 'texts'\ncache = 'runs/a'\n", "corpus.cache"),
    "cache anywhere in it": (
        "[corpus]\npaths = 'texts'\ncache = 'runs/a/b'\n",
        "corpus.cache",
    ),
    "conversations": (f"{CHAT}paths = 'runs'\n", "chat.paths"),
    "conversations held out": (
        f"{CHAT}paths = 'a.jsonl'\nvalidation_paths = 'runs/a/checkpoints/b.jsonl'\n",
        "chat.validation_paths",
    ),
    "cache of conversations": (
        f"{CHAT}paths = 'a.jsonl'\ncache = 'runs/a/checkpoints'\n",
        "chat.cache",
    ),
}


@pytest.mark.parametrize("tables, key", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("output", ["runs/a", "./link", "everything/runs/a"])
def test_refused(folder, tables, key, output):
    for place in (output, str(folder / output)):
        config = parse_config(tables).with_output(place)
        with pytest.raises(ConfigError, match=f"^`{key}` must not be .*Set `") as error:
            check_places(config)
        assert repr(place) in str(error.value)


FINE = {
    "the demo": "",
    "the standard library": "[data]\ntext = 'stdlib'\n",
    "a folder below": "[data]\ntext = 'texts'\n",
    "a file next to the run": "[data]\ntext = 'runs/b.txt'\n",
    "the preset of another run": "[model]\npreset = 'runs/b/preset'\n",
    "a handle": "[distillation]\nteacher = 'hf://runs/a/preset'\n",
    "documents of which none is the run's": (
        "[corpus]\npaths = '.'\npattern = '*.py'\n"
    ),
    "a data set of the hub": "[corpus]\ndataset = 'runs/none'\n",
    "the cache next to the text": "[corpus]\npaths = 'texts'\ncache = 'texts/cache'\n",
    "documents and a file called as the run": (
        "[corpus]\npaths = 'texts'\npattern = 'one/*.txt'\n"
    ),
}


@pytest.mark.parametrize("tables", FINE.values(), ids=FINE.keys())
def test_fine(tables):
    check_places(parse_config(tables).with_output("runs/a"))


def test_a_cache_that_would_be_read():
    tables = "[corpus]\npaths = 'texts'\npattern = '*.json'\ncache = 'texts/cache'\n"
    match = "`corpus.paths` must not be .* with corpus.cache='texts/cache'. Set `corp"
    with pytest.raises(ConfigError, match=match):
        check_places(parse_config(tables).with_output("runs/a"))


def test_what_is_hidden_is_not_read(folder):
    """As in any folder of text; nor is what a link leads to."""
    config = parse_config("[data]\ntext = '.'\n")
    check_places(config.with_output(".runs/a"))
    check_places(config.with_output(str(folder.parent / "elsewhere")))
    check_places(parse_config("[data]\ntext = 'texts'\n").with_output("texts/away/a"))


def test_the_file_of_the_run():
    config = parse_config("").with_output("runs/a")
    for file in ("a.toml", "runs/a/config.toml", "link/config.toml", "runs/a.toml"):
        check_file(file, config)
    for file in ("runs/a/checkpoints/a.toml", "link/preset/config.toml"):
        with pytest.raises(ConfigError, match="The file of a run must not be inside"):
            check_file(file, config)


def test_a_path_that_cannot_be():
    check_places(parse_config("[data]\ntext = 'a\\u0000b'\n").with_output("runs/a"))
