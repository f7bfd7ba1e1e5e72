"""The list of a run's keys is what the code and demo.toml say."""

import dataclasses

from docs.building.toml_keys import PAGE, comments, with_keys
from keras_idea.lm.runs.config import RunConfig


def test_the_page_is_of_today():
    """After a change: python -m docs.building.toml_keys."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_keys(page)


def test_each_key_is_explained():
    told = comments()
    for part in dataclasses.fields(RunConfig):
        for field in dataclasses.fields(part.type):
            assert told[part.name, field.name], f"[{part.name}] {field.name}"
