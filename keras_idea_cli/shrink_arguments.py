"""The arguments of `keras-idea shrink`."""

import argparse
import re
from typing import Any


def add_shrink(commands: Any) -> None:
    """Adds the command to the `argparse` subparsers."""
    shrink = commands.add_parser(
        "shrink",
        help="make a checkpoint smaller in one step, without training",
        description="Loads a checkpoint, removes what is least important on a text, "
        "and saves a KerasHub preset. Prints parameters, bytes and perplexity before "
        "and after. Give targets, or a budget. Nothing is trained: recover the model "
        "afterwards.",
    )
    shrink.add_argument(
        "source",
        metavar="SOURCE",
        help="a KerasHub preset (a folder or a handle), a Hugging Face folder or a "
        "GGUF file",
    )
    shrink.add_argument(
        "--to", metavar="FOLDER", required=True, help="where the preset is saved"
    )
    shrink.add_argument(
        "--text",
        metavar="PATH",
        required=True,
        help="a text file or folder, or 'stdlib': to measure on, and to judge by",
    )
    _add_sizes(shrink)
    shrink.add_argument(
        "--search",
        action="store_true",
        help="judges several shapes within the budget, and takes the best",
    )
    shrink.add_argument(
        "--kinds",
        default="neurons,blocks",
        metavar="AXIS,...",
        help="what a search may remove: neurons, kv_groups, blocks, hidden_dim "
        "(default neurons,blocks)",
    )
    shrink.add_argument(
        "--candidates",
        type=int,
        default=8,
        metavar="N",
        help="how many shapes a search judges (default 8)",
    )
    shrink.add_argument(
        "--round-to",
        type=int,
        default=1,
        metavar="N",
        help="neurons are a multiple of N; 32 for quantized GGUF files (default 1)",
    )
    shrink.add_argument(
        "--method",
        choices=("activation", "sensitivity", "magnitude", "random"),
        default="activation",
        help="what ranks neurons and heads (default activation)",
    )
    shrink.add_argument(
        "--by-weights",
        action="store_true",
        help="weighs the activations by the spans of the weights",
    )
    shrink.add_argument(
        "--refit",
        action="store_true",
        help="fits what reads the neurons and heads that stay, by least squares",
    )
    shrink.add_argument(
        "--tokens",
        type=whole_number,
        default=32_768,
        metavar="N",
        help="the most tokens to measure on (default 32768)",
    )
    shrink.add_argument(
        "--window",
        type=int,
        default=512,
        metavar="TOKENS",
        help="the tokens of a row of text (default 512)",
    )
    shrink.add_argument(
        "--export",
        choices=("hf", "gguf"),
        help="also exports the model: to FOLDER-hf, or to FOLDER.gguf",
    )
    shrink.add_argument(
        "--gguf-dtype",
        metavar="TYPE",
        help="as of `export`",
    )


def _add_sizes(command: argparse.ArgumentParser) -> None:
    """What stays: a target for each axis, or a budget."""
    for name, what in (
        ("neurons", "in each FFN"),
        ("kv-groups", "key/value heads in each attention layer"),
        ("blocks", "blocks"),
        ("hidden-dim", "features of the residual stream"),
        ("vocabulary", "tokens, those that the text uses most,"),
    ):
        command.add_argument(
            f"--{name}",
            type=_size,
            metavar="SIZE",
            help=f"how many stay {what}: a number, or a fraction such as 0.67"
            if name == "neurons"
            else f"how many {what} stay, likewise",
        )
    for name in ("parameters", "bytes", "flops"):
        command.add_argument(
            f"--target-{name}",
            type=whole_number,
            metavar="N",
            help=f"the most {name}, such as 90M; as many neurons stay as that allows",
        )
    command.add_argument(
        "--target-dtype",
        choices=("float32", "bfloat16", "float16", "int8"),
        default="float32",
        help="the type of --target-bytes (default float32)",
    )


def _size(text: str) -> int | float:
    """A number of units, or a fraction."""
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def whole_number(text: str) -> int:
    """A whole number, which may be 90M, 1.5B or 64k."""
    found = re.fullmatch(r"([\d_]+(?:\.\d+)?)([kMB]?)", text.replace(",", ""))
    if not found:
        raise argparse.ArgumentTypeError(
            f"invalid number: {text!r} (give for example 90M)"
        )
    return round(float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "B": 1e9}[found[2]])
