"""The last section of docs/runs.md, made by `python -m docs.building.toml_keys`.

The keys, their defaults and meanings are those of the fields of `RunConfig`.
"""

import pathlib

import pydantic_core

from keras_idea._lm.runs.config import RunConfig

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "runs.md"
_BEGIN = "## The keys of a run file\n"
_HEAD = f"""{_BEGIN}
You can leave out any key; a key without a default then has no effect. To begin, copy
[demo.toml](../keras_idea/_lm/runs/demo.toml). A run may resume with another value of a
key that is marked with \\*.
"""


def toml_value(value: object) -> str:
    """A default as TOML writes it; "" for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"`{value!r}`"
    return f"`{pydantic_core.to_json(value).decode()}`"


def with_keys(page: str) -> str:
    """The page with its last section of today: one table for each of a run's."""
    lines = [page.partition(_BEGIN)[0] + _HEAD]
    for table, keys in RunConfig.tables().items():
        lines += [f"\n### `[{table}]`\n", "| key | default | meaning |"]
        lines += ["|---|---|---|"]
        for name, field in keys.items():
            mark = "\\*" if field.json_schema_extra["may_change"] else ""
            default = toml_value(field.default)
            lines.append(f"| `{name}`{mark} | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_keys(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
