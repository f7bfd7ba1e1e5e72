"""Each fault of tests/known_faults.py can still be put into the code."""

import pytest

from tests.known_faults import FAULTS
from tests.support import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.fault)
def test_what_it_changes_is_there_once(fault):
    text = (ROOT / "keras_idea" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old
