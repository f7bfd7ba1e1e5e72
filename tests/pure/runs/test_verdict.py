"""What a run says below its table."""

import pytest

from keras_idea.lm.runs.train.results import verdict
from keras_idea.report import ResultRow


def said(**bits):
    return verdict([ResultRow(n.replace("_", " "), 1, b) for n, b in bits.items()])


def test_next_to_the_scratch_baseline():
    lines = said(pruned=2.1532, narrow_from_scratch=2.2009).splitlines()
    assert lines[0] == (
        "Pruned 2.153, narrow from scratch 2.201 bits per byte at equal tokens: the "
        "pruned model is better by 0.048. It took more FLOPs (`keras-idea plan`)."
    )
    assert lines[1].startswith("This is one run of each.")


def test_next_to_a_teacher_and_without_it():
    rows = {"teacher": 1.664, "pruned": 1.774, "pruned, no teacher": 1.798}
    lines = verdict([ResultRow(n, 1, b) for n, b in rows.items()]).splitlines()
    assert lines[0].endswith(
        "teacher 1.664 bits per byte: the pruned model is worse by 0.110."
    )
    assert lines[1].startswith("With the teacher 1.774, without it 1.798 bits per byte")
    assert lines[1].endswith("the pruned model with the teacher is better by 0.024.")


@pytest.mark.parametrize(
    "ours, gap", [(2.2001, "equal to three"), (2.2009, "worse by 0.001")]
)
def test_a_difference_that_is_not_shown_is_none(ours, gap):
    assert gap in said(pruned=ours, narrow_from_scratch=2.2)


def test_nothing_to_compare_with():
    assert said(pruned=2.0) == ""
    assert said(teacher=None, pruned=2.0) == ""


def test_what_is_no_number_is_not_compared():
    assert "is not comparable" in said(teacher=1.0, pruned=float("nan"))
