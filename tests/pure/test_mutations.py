"""Each fault of `make mutations` can still be put into the code."""

import pytest

from tests.mutations import MUTATIONS
from tests.support import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.fault)
def test_what_it_changes_is_there_once(mutation):
    text = (ROOT / "keras_idea" / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
