"""What was measured on a GPU: a block of docs/speed.md."""

import json

from benchmarks.pages.of_channels import TITLES
from benchmarks.pages.words import table
from benchmarks.record import REPOSITORY

RATIOS = ("pruning + callback / wide", "compacted in place / built narrow")
GIB = 1 << 30


def _pieces(kind):
    """List of the records of a kind of `gpu_day.py`, by name."""
    folder = REPOSITORY / "benchmarks" / "results" / "gpu_day"
    return [json.loads(p.read_text()) for p in sorted(folder.glob(f"{kind}-*.json"))]


def _shape(shape):
    return (
        f"{shape['num_layers']} layers of {shape['model_dim']}, FFN "
        f"{shape['hidden_dim']:,} to {shape['target_dim']:,}, {shape['batch_size']} × "
        f"{shape['sequence_length']:,} tokens"
    )


def _backend(record):
    return TITLES["jax" if "jax" in record["versions"] else "torch"]


def steps():
    """The table of steps, and what whole runs took."""
    lines = [["decoder", "backend", "pruning", "narrowed in `fit`", "measured"]]
    for found in _pieces("steps"):
        ratios = [
            f"{r['median']:.2f} ({r['low']:.2f}–{r['high']:.2f})"
            for r in (found["ratios"][name] for name in RATIOS)
        ]
        measured = f"{found['date'][:10]}, {found['hardware']['device']}"
        lines.append([_shape(found["shape"]), _backend(found), *ratios, measured])
    said = [_whole(found) for found in _pieces("whole")]
    said += [_elastic(found) for found in _pieces("elastic")]
    return "\n\n".join([table(lines), *said])


def short():
    """A step while pruning, of all records, in half a sentence."""
    found = _pieces("steps")
    [device] = {record["hardware"]["device"] for record in found}
    each = " and ".join(
        f"{record['ratios'][RATIOS[0]]['median']:.2f}× ({_backend(record)})"
        for record in found
    )
    return f"{each} on an {device}"


def _whole(found):
    wide, narrow = (found["summary"][key] for key in ("wide", "narrow"))
    widths = [step["neurons"] for step in found["steps"]]
    narrowings = [
        s for s, w in zip(found["steps"][1:], widths, strict=False) if s["neurons"] < w
    ]
    dearest = max(step["seconds"] for step in narrowings)
    held = [f"{p['device peak'] / GIB:.0f}" for p in (wide, narrow)]
    return (
        f"A whole run in one `fit` ({_shape(found['shape'])}; {_backend(found)}, "
        f"{found['hardware']['device']}, {len(found['steps'])} steps): a step took "
        f"{wide['seconds a step']:.2f} s wide and {narrow['seconds a step']:.2f} s "
        f"narrow, the device held at most {held[0]} GiB wide and {held[1]} GiB narrow, "
        f"and each of the {len(narrowings)} steps that narrowed the model took "
        f"{dearest:.1f} s or less."
    )


def _elastic(found):
    """Steps of several widths in one run, beside models built so."""
    names = ("full", "half", "quarter")
    ratios = (found["ratios"][f"elastic {name} / built {name}"] for name in names)
    each = [f"{r['median']:.2f} ({r['low']:.2f}–{r['high']:.2f})" for r in ratios]
    less = [found["ratios"][f"elastic {n} / built full"]["median"] for n in names[1:]]
    return (
        "Several widths in one run (`ki.ElasticCallback`; "
        f"{_shape(found['shape']).split(' to ')[0]}; {_backend(found)}, "
        f"{found['hardware']['device']}): a step at full, half and quarter width took "
        f"{each[0]}, {each[1]} and {each[2]} of a step of a model built so; at half "
        f"and quarter width {less[0]:.2f} and {less[1]:.2f} of a step at full width."
    )


BLOCKS = {"speed-gpu": steps}
