"""The last section of docs/runs.md, made by `python -m docs.building.toml_keys`.

The keys and defaults are those of the code, the meanings the comments of demo.toml.
"""

import dataclasses
import pathlib
import re
import tomllib

from keras_idea.lm.runs.config import RunConfig

ROOT = pathlib.Path(__file__).parents[2]
DEMO = ROOT / "keras_idea" / "lm" / "runs" / "demo.toml"
PAGE = ROOT / "docs" / "runs.md"
_KEY = re.compile(r"(?:# )?(\w+) = (?:[^#\"]|\"[^\"]*\")*(?:#\s*(.*))?")
_MORE = re.compile(r"\s+#\s*(.*)")
#: Values of demo.toml that are no defaults.
_OF_THE_DEMO = {("model", "hub"), ("sample", "prompt")}
_BEGIN = "## The keys of a run file\n"
_HEAD = f"""{_BEGIN}
You can leave out any key; a key without a default then has no effect. To begin, copy
[demo.toml](../keras_idea/lm/runs/demo.toml).
"""


def comments() -> dict[tuple[str, str], str]:
    """(table, key) -> what demo.toml says of it."""
    found: dict[tuple[str, str], str] = {}
    place, table = None, ""
    for line in DEMO.read_text(encoding="utf-8").splitlines():
        more, key = _MORE.fullmatch(line), _KEY.fullmatch(line)
        if line.startswith("["):
            table, place = line[1 : line.index("]")], None
        elif more and place:
            found[place] += f" {more[1]}"
        elif key and table:
            place = table, key[1]
            found.setdefault(place, "")
            found[place] += key[2] or ""
    return found


def toml_value(value: object) -> str:
    """A default as TOML writes it; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (tuple, list)):
        return f"`[{', '.join(toml_value(v).strip('`') for v in value)}]`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"


def with_keys(page: str) -> str:
    """The page with its last section, one table for each of a run's, of today."""
    meanings, lines = comments(), [page.partition(_BEGIN)[0] + _HEAD]
    demo = tomllib.loads(DEMO.read_text(encoding="utf-8"))
    for part in dataclasses.fields(RunConfig):
        lines += [f"\n### `[{part.name}]`\n", "| key | default | meaning |"]
        lines += ["|---|---|---|"]
        for field in dataclasses.fields(part.type):
            meaning = meanings[part.name, field.name].replace("|", "or")
            default = field.default
            if default is None and (part.name, field.name) not in _OF_THE_DEMO:
                default = demo[part.name].get(field.name)
            lines.append(f"| `{field.name}` | {toml_value(default)} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_keys(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
