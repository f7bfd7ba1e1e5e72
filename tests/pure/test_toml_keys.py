"""The list of a run's keys is what the code says."""

from docs.building.toml_keys import PAGE, with_keys


def test_the_page_is_of_today():
    """After a change: python -m docs.building.toml_keys."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_keys(page)
