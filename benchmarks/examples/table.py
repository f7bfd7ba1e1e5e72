"""The table of the examples, from their records alone."""

import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from benchmarks import record

BACKENDS = ("torch", "tensorflow", "jax")
COLUMNS = (
    "example",
    "backend",
    "Dense pairs",
    "found",
    "pruned",
    "saved and loaded",
    "compacted",
    "reason",
)
#: Above this, the outputs are others.
TOLERANCE = 1e-4
NOTES = (
    "Each row is a model of the example's structure, written anew and small, with "
    "random inputs (benchmarks/examples). **Dense pairs**: hidden layers whose neurons "
    "a reader would prune, counted by hand. **Found**: by `ki.explain`. **Pruned**: "
    "widths before and after `fit` with `ki.IdeaPruneCallback(0.5, begin_step=2, "
    "prune_steps=3)`. **Saved and loaded**: greatest difference of the outputs after "
    '`save` and, in a fresh process with Keras alone, `load_model`; "Keras cannot" if '
    "the same fails for the wide model too. **Compacted**: of `ki.compact(model)` from "
    'the model masked by `compact="off"`. A model without `call` is judged by the '
    "models that it holds. Outputs are of about 1; random outputs are left out."
)


def row(found: dict[str, Any]) -> list[str]:
    """The cells of an example, from its pairs on."""
    return [
        str(found["pairs"]),
        str(len(found["found"])) if "found" in found else "no",
        pruned(found),
        loaded(found),
        compacted(found),
        reason(found),
    ]


def pruned(found: dict[str, Any]) -> str:
    """Widths before and after."""
    if "pruned" not in found:
        return "no" if found["pairs"] else "-"
    widths = dict.fromkeys(f"{a} → {b}" for a, b in found["pruned"].values())
    return ", ".join(widths)


def number(value: float) -> str:
    """A difference."""
    return "same bits" if value == 0 else f"{value:.0e}"


def judged(values: Iterable[Any]) -> str:
    """The greatest difference; "no" for an error."""
    values = list(values)
    if not values or any(isinstance(value, str) for value in values):
        return "no"
    worst = max(values)
    return number(worst) if worst <= TOLERANCE else f"no: off by {worst:.0e}"


def loaded(found: dict[str, Any]) -> str:
    """What Keras loads of what `fit` narrowed."""
    if "pruned" not in found:
        return "-"
    said = judged(found["loaded"].get("narrow", {}).values())
    if said.startswith("no") and not by_keras(found):
        return "Keras cannot"
    return said


def by_keras(found: dict[str, Any]) -> bool:
    """Whether Keras saves and loads the wide model."""
    wide = found["loaded"].get("wide", {}).values()
    return not judged(wide).startswith("no") and "wide file" not in found["errors"]


def compacted(found: dict[str, Any]) -> str:
    """What `ki.compact` makes of the masked model."""
    if "pruned" not in found:
        return "-"
    if "compacted" in found["errors"] or "masked" in found["errors"]:
        return "no"
    return judged(found.get("compacted", {}).values())


def good(found: dict[str, Any]) -> bool:
    """Whether all is well: all pairs pruned, loaded if Keras can, compacted."""
    if not found["pairs"]:
        return not found["errors"].keys() & {"process", "loading process"}
    return (
        len(found.get("pruned", ())) >= found["pairs"]
        and not loaded(found).startswith("no")
        and not compacted(found).startswith("no")
    )


def reason(found: dict[str, Any]) -> str:
    """Why not, in the words of the errors; of those beside pairs, the reader's."""
    errors, reasons = found["errors"], []
    for stage in ("process", "loading process"):
        if stage in errors:
            reasons.append(errors[stage])
    if len(found.get("found", ())) < found["pairs"]:
        reasons += left_out(found)
    if "pruned" in errors and "has no FFN" not in errors["pruned"]:
        reasons.append(f"pruned: {first(errors['pruned'])}")
    if "Keras alone" in errors:
        reasons.append(f"Keras alone: {first(errors['Keras alone'])}")
    if found.get("needs groups"):
        reasons.append(f"without `groups`: {first(found['needs groups'])}")
    if loaded(found).startswith("no"):
        values = found["loaded"]["narrow"].values()
        errors = [value for value in values if isinstance(value, str)]
        reasons += [f"loaded: {first(error)}" for error in errors[:1]]
    if compacted(found).startswith("no"):
        said = found["errors"].get("compacted") or found["errors"].get("masked", "")
        reasons.append(
            f"compacted: {first(said)}" if said else "compacted: other outputs"
        )
    if not reasons and found["pairs"] == 0:
        reasons.append(f"no pair: {found['others']}")
    if any("another width" in heard for heard in found.get("warnings", ())):
        vain = loaded(found)[0].isdigit() or loaded(found) == "same bits"
        reasons.append(
            "warned that the file cannot be loaded" + (", wrongly" if vain else "")
        )
    return "; ".join(reasons).replace("|", "/")


def left_out(found: dict[str, Any]) -> list[str]:
    """Reasons of `ki.explain`, without the names of layers, the commonest first."""
    kinds: dict[str, int] = {}
    for why in found.get("left_out", {}).values():
        if "output of the model" in why:
            continue
        kind = re.sub(r" '[^']*'", "", why)
        kinds[kind] = kinds.get(kind, 0) + 1
    if not kinds:
        said = found["errors"].get("pruned", "").partition("can be pruned. ")[2]
        return [f"not found: {first(said) or '`ki.explain` tells of no Dense layer'}"]
    ordered = sorted(kinds, key=lambda kind: -kinds[kind])
    return [
        "not found: " + ", ".join(f"{kind} ({kinds[kind]})" for kind in ordered[:3])
    ]


def first(error: str) -> str:
    """The first sentence or so of an error, without its type if it is our own."""
    plain = re.sub(r"^(ArgumentError|PruningStopped): ", "", error)
    plain = re.split(r"(?<=[a-z)'`])[.;] ", plain)[0].rstrip(".")
    return plain if len(plain) <= 160 else plain[:157] + "..."


def read(folder: pathlib.Path) -> dict[str, Any]:
    """Facts and records of each backend that has been run, of its last commit."""
    found = {}
    for backend in BACKENDS:
        facts = folder / backend / "facts.json"
        if facts.exists():
            run_facts = json.loads(facts.read_text())
            paths = [p for p in (folder / backend).glob("*.json") if p != facts]
            records = [json.loads(path.read_text()) for path in paths]
            records = [one for one in records if one["commit"] == run_facts["commit"]]
            records.sort(key=lambda one: one["place"])
            for one in records:  # a trace names folders of this machine
                one.pop("traces", None)
            named = {one.pop("example"): one for one in records}
            found[backend] = {**run_facts, "examples": named}
    return found


def tables(backends: dict[str, Any]) -> list[dict[str, Any]]:
    """Each example on the first backend that has it; then where others differ."""
    chosen = first_of_each(backends)
    rows = [[name, b, *row(found)] for name, (b, found) in chosen.items()]
    judged_here = {name: found for name, (_, found) in chosen.items()}
    others = [
        [name, backend, *row(found)]
        for backend, ran in backends.items()
        for name, found in ran["examples"].items()
        if chosen[name][0] != backend
        and verdict(row(found)) != verdict(row(judged_here[name]))
    ]
    ran_too = [
        f"{len(ran['examples'])} models on {backend}"
        for backend, ran in backends.items()
    ]
    return [
        {
            "title": "Models of keras.io's examples",
            "columns": COLUMNS,
            "rows": rows,
            "notes": f"{counts(judged_here)}\n\n{NOTES}",
        },
        {
            "title": "Where another backend's verdict differs",
            "columns": COLUMNS,
            "rows": others,
            "notes": f"Run: {', '.join(ran_too)}.",
        },
        {
            "title": "How the examples are written",
            "columns": ("example", "written", "the other Dense layers"),
            "rows": [
                [name, found["written"], found["others"]]
                for name, found in judged_here.items()
            ],
            "notes": "",
        },
    ]


def first_of_each(backends: dict[str, Any]) -> dict[str, tuple[str, dict]]:
    """Each example's first backend and its record there, in the order of the files."""
    places = {
        name: found["place"]
        for ran in backends.values()
        for name, found in ran["examples"].items()
    }
    return {
        name: next(
            (backend, ran["examples"][name])
            for backend, ran in backends.items()
            if name in ran["examples"]
        )
        for name in sorted(places, key=lambda name: places[name])
    }


def verdict(cells: list[str]) -> list[str]:
    """The cells without the reason, and without the size of a difference."""
    return [re.sub(r"^(same bits|\de-\d\d)$", "yes", cell) for cell in cells[:-1]]


def counts(examples: dict[str, Any]) -> str:
    """How many of what, in a sentence."""
    pairs = [found for found in examples.values() if found["pairs"]]
    whole = [f for f in pairs if len(f.get("found", ())) >= f["pairs"]]
    fits = [f for f in pairs if "pruned" in f]
    can = [f for f in fits if loaded(f) != "Keras cannot"]
    loads = [f for f in can if not loaded(f).startswith("no")]
    small = [f for f in fits if not compacted(f).startswith("no")]
    example = {name.partition(": ")[0] for name in examples}
    return (
        f"{len(examples)} models of {len(example)} examples, {len(pairs)} with Dense "
        f"pairs. All pairs are found in {len(whole)}; {len(fits)} are pruned; of the "
        f"{len(can)} of these that Keras saves and loads while wide, {len(loads)} load "
        f"when narrow; {len(small)} of {len(fits)} are compacted. All is well with "
        f"{sum(map(good, examples.values()))} of {len(examples)}."
    )


def write(folder: pathlib.Path, output: pathlib.Path) -> list[pathlib.Path]:
    """Writes examples.json and examples.md; returns their paths."""
    backends = read(folder)
    return record.write(
        output, "examples", facts_of(backends), {"backends": backends}, tables(backends)
    )


def facts_of(backends: dict[str, Any]) -> dict[str, Any]:
    """The facts of the first backend, with the versions of all."""
    first_facts = next(iter(backends.values()))
    keys = ("date", "command", "commit", "versions", "hardware")
    facts = {key: first_facts[key] for key in keys}
    facts["versions"] = {
        name: version
        for found in backends.values()
        for name, version in found["versions"].items()
    }
    facts["command"] = "\n    ".join(ran["command"] for ran in backends.values())
    return facts
