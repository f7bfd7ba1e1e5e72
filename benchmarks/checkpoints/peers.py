"""optipfair and Torch-Pruning on the same Hugging Face folder, text and windows.

    pip install --no-deps optipfair==0.4.2 torch-pruning==1.6.1
    python -m benchmarks.checkpoints.peers smollm2 HF_FOLDER --text ../shared/data/text

In plain torch, without keras_idea's code for pruning. Writes cells beside the others.
With `--tokens 65536` each model is then recovered by the study's arm "refit, logits":
the same rows, loss, optimizer and schedule, in plain transformers.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import pathlib
import time

import torch
import transformers

import keras_idea as ki
from benchmarks import record
from benchmarks.checkpoints.cells import BATCH, CALIBRATION, LENGTH, SHARES, Cell
from benchmarks.checkpoints.texts import HELD_OUT, WINDOW, read_with


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.peers")
    parser.add_argument("name")
    parser.add_argument("folder", help="a Hugging Face folder")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    results = record.REPOSITORY / "benchmarks" / "results" / "checkpoints"
    parser.add_argument("--results", type=pathlib.Path, default=results)
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES)
    parser.add_argument("--ways", nargs="*", default=list(METHODS))
    parser.add_argument("--tokens", type=int, default=0, help="of a recovery")
    parser.add_argument("--peak", type=float, default=3e-4)
    arguments = parser.parse_args()
    auto = transformers.AutoTokenizer.from_pretrained(arguments.folder)
    texts = read_with(
        arguments.text,
        lambda text: auto.encode(text, add_special_tokens=False),
        auto.bos_token_id if arguments.name.startswith("gemma") else None,
    )
    names = ("torch", "transformers", "optipfair", "torch-pruning")
    versions = {name: importlib.metadata.version(name) for name in names}
    command = f"python -m benchmarks.checkpoints.peers {arguments.name} HF_FOLDER"
    if arguments.tokens:
        command += f" --tokens {arguments.tokens} --peak {arguments.peak:g}"
    facts = record.facts(command, versions, "cpu")
    ways = {how: METHODS[how] for how in arguments.ways}
    methods: dict = dict.fromkeys(arguments.shares, ways)
    if not arguments.tokens:
        methods[1.0] = {"transformers": None}
    if arguments.name == "gemma3":
        methods[0.78] = {"blocks 8, 9, 14, 16 out": _without_blocks}
    for share, ways in methods.items():
        for how, prune in ways.items():
            peak = arguments.peak if arguments.tokens else 0.0
            cell = Cell(share, how, arguments.tokens, peak)
            path = arguments.results / arguments.name / f"{cell.name}.json"
            if path.exists():
                continue
            began = time.monotonic()
            model = load(arguments.folder)
            full = model.config.intermediate_size
            if prune is not None:
                width = 32 * round(share * full / 32)
                rows = texts.rows(CALIBRATION, LENGTH, seed=0)
                prune(model, width, torch.tensor(rows[:, :-1].astype("int64")))
            if arguments.tokens:
                recover(model, load(arguments.folder), texts, cell)
            found = dataclasses.asdict(cell)
            found["parameters"] = sum(p.numel() for p in model.parameters())
            found |= {name: judge(model, texts, name) for name in HELD_OUT}
            found |= {"seconds": round(time.monotonic() - began, 1), **facts}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(how, share, *(f"{found[name]:.4f}" for name in HELD_OUT), flush=True)


def load(folder: str) -> transformers.PreTrainedModel:
    """The checkpoint in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    )


def recover(model, teacher, texts, cell: Cell) -> None:
    """Trains as `cells.fit` does with a teacher's logits: half of the loss is each.

    AdamW with what Keras's has by default.
    """
    steps = cell.tokens // (LENGTH * BATCH)
    rate = ki.CosineDecay(cell.peak, cell.peak / 100, steps, warmup_steps=steps // 12)
    optimizer = torch.optim.AdamW(model.parameters(), eps=1e-7, weight_decay=0.004)
    rows = torch.tensor(texts.rows(steps * BATCH, LENGTH, cell.seed + 1).astype(int))
    model.train()
    for step, ids in enumerate(rows.split(BATCH)):
        with torch.no_grad():
            theirs = teacher(ids[:, :-1]).logits.log_softmax(-1).flatten(0, 1)
        ours = model(ids[:, :-1]).logits.log_softmax(-1).flatten(0, 1)
        labels = torch.nn.functional.nll_loss(ours, ids[:, 1:].flatten())
        logits = torch.nn.functional.kl_div(
            ours, theirs, log_target=True, reduction="batchmean"
        )
        optimizer.zero_grad()
        (0.5 * labels + 0.5 * logits).backward()
        optimizer.param_groups[0]["lr"] = float(rate(step))
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} of {steps}: {labels:.4f} {logits:.4f}", flush=True)


@torch.no_grad()
def judge(model, texts, name: str) -> float:
    """Nats per token, as `cells.judge`, in plain torch."""
    model.eval()
    tokens, sums = texts.judged(name), []
    for start in range(0, len(tokens) - 1, WINDOW):
        ids = torch.tensor(tokens[None, start : start + WINDOW + 1].astype("int64"))
        if texts.start_id is not None:
            ids[:, 0] = texts.start_id
        logits = model(ids[:, :-1]).logits
        sums.append(
            torch.nn.functional.cross_entropy(
                logits[0].double(), ids[0, 1:], reduction="sum"
            )
        )
    return float(sum(sums)) / (len(tokens) - 1)


def _optipfair(model, width, ids, data=False):
    import optipfair

    loader = torch.utils.data.DataLoader(
        [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in ids],
        batch_size=8,
    )
    full = model.config.intermediate_size
    optipfair.prune_model(
        model,
        "MLP_GLU",
        "MAW",
        pruning_percentage=100 * (full - width) / full,
        dataloader=loader if data else None,
        show_progress=False,
    )
    kept = model.model.layers[0].mlp.gate_proj.out_features
    assert kept == width, (kept, width)


def _torch_pruning(model, width, ids, taylor=False):
    import torch_pruning as tp

    if taylor:
        for rows in ids.split(4):
            model(rows, labels=rows).loss.backward()
        importance = tp.importance.GroupTaylorImportance()
    else:
        importance = tp.importance.GroupMagnitudeImportance(p=2)
    graph = tp.DependencyGraph().build_dependency(
        model, example_inputs=ids[:1], output_transform=lambda out: out.logits
    )
    for layer in model.model.layers:
        gate, cut = layer.mlp.gate_proj, tp.prune_linear_out_channels
        every = list(range(gate.out_features))
        group = graph.get_pruning_group(gate, cut, idxs=every)
        scores = importance(group)
        gone = scores.argsort()[: gate.out_features - width].tolist()
        graph.get_pruning_group(gate, cut, idxs=gone).prune()
    model.config.intermediate_size = width


def _without_blocks(model, width, ids, gone=(8, 9, 14, 16)):
    """Gemma 3 270M as in peremartra/Rearchitecting-LLMs; its neurons stay."""
    for stack in (model.model.layers, model.config.layer_types):
        for place in reversed(gone):
            del stack[place]
    model.config.num_hidden_layers = len(model.model.layers)
    for place, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = place


METHODS = {
    "optipfair": _optipfair,
    "optipfair with data": lambda *arguments: _optipfair(*arguments, data=True),
    "Torch-Pruning, magnitude": _torch_pruning,
    "Torch-Pruning, Taylor": lambda *arguments: _torch_pruning(*arguments, taylor=True),
}

if __name__ == "__main__":
    main()
