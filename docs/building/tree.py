"""The site's sources: the repository's own pages, where they lie, and what is made.

Links between files of the repository stay as they are: what one points to is copied.
"""

import pathlib
import re
import shutil

from docs.building.guides import read_guide, to_notebook, to_page
from docs.building.outputs import printed

ROOT = pathlib.Path(__file__).parents[2]
#: Pages and pictures, by patterns.
COPIED = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "llms.txt",
    "docs/*.md",
    "docs/*.png",
    "benchmarks/README.md",
    "benchmarks/results/**/*.md",
    "benchmarks/results/**/*.png",
    "examples/**/*",
)
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)]*)?\))")


def make_tree(out: pathlib.Path) -> None:
    """Writes all sources of the site but those that are computed.

    Args:
        out: path of a folder, which is emptied.
    """
    shutil.rmtree(out, ignore_errors=True)
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                _copy(path, out / path.relative_to(ROOT))
    _copy(ROOT / "README.md", out / "index.md")
    for path in sorted((ROOT / "docs/guides").glob("*.py")):
        guide, target = read_guide(path.read_text()), out / "docs/guides"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / path.name)
        (target / f"{path.stem}.ipynb").write_text(to_notebook(guide))
        page = to_page(guide, path.stem, printed(path.stem))
        (target / f"{path.stem}.md").write_text(page)
    for page in [*out.rglob("*.md")]:
        for link in linked_files(page, out):
            _copy(ROOT / link, out / link)


def linked_files(page: pathlib.Path, out: pathlib.Path) -> list[pathlib.Path]:
    """Files of the repository that a page points to and that the site lacks yet."""
    found = []
    for _, target, _ in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        if not path.exists() and path.is_relative_to(out.resolve()):
            inside = path.relative_to(out.resolve())
            if (ROOT / inside).is_file():
                found.append(inside)
    return found


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".md":
        shutil.copy(source, target)
        return

    def page_of(match):
        """A guide is a page of the site; the README is its first one."""
        opened, link, closed = match.groups()
        path = (source.parent / link).resolve()
        if path.parent == ROOT / "docs/guides":
            link = link.removesuffix(".py") + ".md"
        elif path == ROOT / "README.md":
            link = link.removesuffix("README.md") + "index.md"
        return opened + link + closed

    target.write_text(_LINK.sub(page_of, source.read_text()))
