"""Malformed inputs, one a row: each is a clear error, and nothing is lost by it.

A row damages a copy of what is sound, gives a command, and names what the message must
say. The command ends with status 2 and one message without a traceback, and every file
is as it was.
"""

import re
import shutil

import pytest

from keras_idea.lm.cli import main
from tests.support import malformed as m
from tests.support.malformed_rows import ROWS


def status_of(command):
    """The exit status of a command, and the message of a call in its place."""
    if callable(command):
        with pytest.raises(ValueError) as refused:  # its message: see below
            command()
        return 2, str(refused.value)
    try:
        return main(command), ""
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
