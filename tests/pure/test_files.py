"""What is written is whole or not there; digests stay what they were."""

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from keras_idea import _files as files
from keras_idea._files import json_digest, replacing, write_atomically
from tests.support.full_disk import full_disk


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class TestWriteAtomically:
    @pytest.mark.parametrize(
        "data, there",
        [
            ("ü\r\n", "ü\r\n".encode()),
            (b"\0\xff\n", b"\0\xff\n"),
            ("", b""),
            (b"", b""),
        ],
    )
    def test_these_bytes_and_nothing_else(self, tmp_path, data, there):
        path = tmp_path / "deep" / "folder" / "file.txt"
        for _ in range(2):
            write_atomically(path, data)
            assert path.read_bytes() == there
        assert listing(tmp_path) == ["deep", "deep/folder", "deep/folder/file.txt"]

    def test_others_may_read_it_as_any_new_file(self, tmp_path):
        write_atomically(tmp_path / "one", "text")
        (tmp_path / "other").write_text("text")
        modes = [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("one", "other")]
        assert modes[0] == modes[1]

    def test_a_full_disk_leaves_what_was_there(self, tmp_path):
        path = tmp_path / "file.txt"
        write_atomically(path, "earlier")
        with full_disk(4096), pytest.raises(OSError, match="File too large"):
            write_atomically(path, "x" * 10_000)
        with full_disk(0), pytest.raises(OSError, match="File too large"):
            write_atomically(tmp_path / "new" / "file.txt", "x")
        assert path.read_text() == "earlier" and listing(tmp_path) == ["file.txt"]

    def test_nothing_stays_open(self, tmp_path):
        before = len(os.listdir("/dev/fd"))
        for _ in range(9):
            write_atomically(tmp_path / "file.txt", "text")
        assert len(os.listdir("/dev/fd")) < before + 9

    def test_a_name_as_long_as_names_may_be(self, tmp_path):
        write_atomically(tmp_path / ("n" * 255), "text")
        assert (tmp_path / ("n" * 255)).read_text() == "text"

    def test_of_several_at_once_one_is_there_whole(self, tmp_path):
        path, texts = tmp_path / "file.txt", [str(i) * 100_000 for i in range(8)]

        def write(text):
            for _ in range(5):
                write_atomically(path, text)
                assert path.read_text() in texts

        threads = [threading.Thread(target=write, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert path.read_text() in texts and listing(tmp_path) == ["file.txt"]


class TestReplacing:
    @pytest.mark.parametrize("earlier", [False, True])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
    def test_any_end(self, tmp_path, error, earlier):
        path = tmp_path / "a/b"
        if earlier:
            path.mkdir(parents=True)
            (path / "config.json").write_text("earlier")
        before = listing(tmp_path)
        with pytest.raises(error), replacing(path) as temporary:
            temporary.mkdir()
            (temporary / "config.json").write_text("new")
            raise error
        assert listing(tmp_path) == before

    def test_the_earlier_one_comes_back_if_the_last_step_fails(
        self, tmp_path, monkeypatch
    ):
        path, rename, calls = tmp_path / "out", os.rename, []
        path.mkdir()
        (path / "config.json").write_text("earlier")

        def fail_the_second_time(source, place):
            calls.append(source)
            if len(calls) == 2:
                raise OSError("no")
            rename(source, place)

        monkeypatch.setattr(files.os, "rename", fail_the_second_time)
        with pytest.raises(OSError, match="no"), replacing(path) as temporary:
            temporary.mkdir()
        assert (path / "config.json").read_text() == "earlier"
        assert listing(tmp_path) == ["out", "out/config.json"]

    def test_a_link_is_replaced_and_not_what_it_leads_to(self, tmp_path):
        (tmp_path / "mine").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "mine")
        with replacing(tmp_path / "out") as temporary:
            temporary.mkdir()
            (temporary / "new").write_text("new")
        assert listing(tmp_path) == ["mine", "out", "out/new"]

    @pytest.mark.daily()
    def test_killed_in_the_block(self, tmp_path):
        """What was there is there; what is left begins with the known prefix."""
        (tmp_path / "file").write_text("earlier")
        code = (
            "import os, signal, sys\n"
            "from keras_idea._files import replacing\n"
            "with replacing(sys.argv[1]) as temporary:\n"
            "    temporary.write_text('half')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "file")]
        assert subprocess.run(command).returncode == -signal.SIGKILL
        assert (tmp_path / "file").read_text() == "earlier"
        names = {path.name for path in tmp_path.iterdir()} - {"file"}
        assert len(names) == 1 and names.pop().startswith(files.TEMPORARY)


class TestJsonDigest:
    VALUE = {"b": [1, 2.5, None, True], "a": {"ü": "☃", "n": -3}}

    def test_the_values_on_disks(self):
        """As every place that takes a digest gave it before there was one way."""
        index = "4cd93271ef3b1fbf02b557d1de8e66fba2e90623ab5d86f72abcf6c4973b831c"
        assert json_digest(self.VALUE) == index
