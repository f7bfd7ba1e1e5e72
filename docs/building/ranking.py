"""A hook of mkdocs: in the search, answers come first, results and decisions last."""

from typing import Any

#: How a folder or page counts in the search; all others count as 1.
_BOOSTS = {"benchmarks/": 0.1, "docs/decisions": 0.05, "docs/reference/": 0.5}
_BOOSTS |= {"CHANGELOG.md": 0.1, "CONTRIBUTING.md": 0.1}
_BOOSTS |= {"docs/questions_and_errors.md": 2, "docs/settings.md": 2}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Sets what mkdocs-material reads of each page."""
    for place, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(place):
            page.meta["search"] = {"boost": boost}
    return markdown
