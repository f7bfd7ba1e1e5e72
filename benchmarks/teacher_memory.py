"""What a teacher beside the model takes of memory, and what the plan says of it.

    KERAS_BACKEND=jax python benchmarks/teacher_memory.py

A Llama 3 of 61 million parameters is trained for a few steps, alone and with itself as
the teacher, each in a process of its own: the difference is the teacher's. It stands
beside what `keras-idea plan` says of the same run. About three minutes, 4 GB.
Writes benchmarks/results/teacher_memory-BACKEND.json and .md.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import keras
import memory
import numpy as np
import record
from whole_run import Watch

from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.models.compiling import compiled
from keras_idea.lm.runs.models.footprint import footprint, teacher_footprint
from keras_idea.lm.runs.models.hub_source import source_of_preset
from keras_idea.lm.runs.models.outlines import outlines
from keras_idea.lm.runs.plan.compiled_step import compiled_steps
from keras_idea.lm.runs.train.teacher import taught, teacher_outline

VOCABULARY, BATCH, LENGTH, STEPS = 16384, 8, 128, 8
KINDS = ("alone", "taught")
# What the first two steps hold for a while: compilation, and the optimizer's making.
SETTLED = 3


def make_preset(folder):
    """A preset with random weights; its tokenizer knows little more than bytes."""
    import keras_hub

    from keras_idea.lm.data.text.make_tokenizer import make_tokenizer

    tokenizer = make_tokenizer("llama3", "bpe", "a text " * 100, 300)
    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=VOCABULARY,
        num_layers=6,
        num_query_heads=8,
        num_key_value_heads=8,
        hidden_dim=512,
        intermediate_dim=4096,
    )
    preprocessor = keras_hub.models.Llama3CausalLMPreprocessor(tokenizer, LENGTH)
    model = keras_hub.models.Llama3CausalLM(backbone, preprocessor=preprocessor)
    model.save_to_preset(folder)


def run_of(folder):
    """A run that begins with a preset and has it as its teacher."""
    path = pathlib.Path(folder) / "run.toml"
    path.write_text(
        f'[model]\npreset = "{folder}/preset"\ntarget_dim = 1024\n'
        f"sequence_length = {LENGTH}\n"
        f"[data]\nbatch_size = {BATCH}\n"
        "[budget]\nenlarge_steps = 0\nprune_steps = 4\nrecover_steps = 4\n"
        "[optimizer]\nwarmup_steps = 1\n"
        f"[run]\nvalidate_every = {STEPS}\n"
        f'[distillation]\nteacher = "{folder}/preset"\n'
    )
    return load_config(path)


def watch(kind, folder):
    """dict: bytes above what the process held after its imports."""
    config = run_of(folder)
    keras.utils.set_random_seed(0)
    base = memory.rss()
    source = source_of_preset(config.model, config.run.dtype)
    model = fitted = compiled(config, source.wide())
    if kind == "taught":
        # Not `load_teacher`, which asks for a tokenizer of as many tokens.
        import keras_hub

        teacher = keras_hub.models.CausalLM.from_preset(
            f"{folder}/preset", preprocessor=None
        )
        fitted = taught(config, model, teacher)
    ids = np.random.default_rng(0).integers(
        VOCABULARY, size=(STEPS * BATCH, LENGTH + 1), dtype="int32"
    )
    seen = Watch()
    seen.set_model(model)
    keras.Model.fit(
        fitted,
        token_inputs(model, ids[:, :-1]),
        ids[:, 1:],
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        callbacks=[seen],
    )
    settled = seen.steps[SETTLED:]
    return {
        "resident": max(step["resident"] for step in settled) - base,
        "peak": max(step["peak"] for step in settled) - base,
        "device peak": settled[-1]["device peak"],
    }


def measured(folder):
    """Dict of kind to what `watch` tells, each of a process of its own."""
    found = {}
    for kind in KINDS:
        command = [sys.executable, __file__, "--kind", kind, "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        found[kind] = json.loads(done.stdout.splitlines()[-1])
    return found


def planned(folder):
    """The plan's bytes of the model and of the teacher."""
    config = run_of(folder)
    outline = outlines(config, VOCABULARY)
    wide = outline.at_start
    source = config.distillation.teacher
    teacher = teacher_footprint(config, teacher_outline(source, config.teacher_dtype))
    compiled_peak = None
    if keras.backend.backend() == "jax":
        compiled_peak = compiled_steps(config, outline, [wide])[wide].peak
    return footprint(config, outline, wide), teacher, compiled_peak


def table(found, model, teacher, compiled_peak):
    """Both side by side, in MiB."""

    def row(what, *sizes):
        return [what, *("-" if size is None else f"{size >> 20}" for size in sizes)]

    def peak(kind):
        return found[kind]["device peak"] or found[kind]["peak"]

    alone, both = found["alone"], found["taught"]
    return {
        "title": f"A model and a teacher of {teacher.parameters:,} parameters, MiB",
        "columns": ["", "plan", "plan --compile", "held between steps", "at most"],
        "rows": [
            row(
                "the model alone",
                model.total,
                compiled_peak,
                alone["resident"],
                peak("alone"),
            ),
            row(
                "with the teacher",
                model.total + teacher.total,
                compiled_peak and compiled_peak + teacher.total,
                both["resident"],
                peak("taught"),
            ),
            row(
                "the teacher",
                teacher.total,
                compiled_peak and teacher.total,
                both["resident"] - alone["resident"],
                peak("taught") - peak("alone"),
            ),
        ],
        "notes": f"Batch {BATCH} x {LENGTH} tokens of {VOCABULARY:,}, float32, "
        f"{keras.backend.backend()}; the plan's teacher is {teacher.weights >> 20} of "
        f"weights and {teacher.activations >> 20} of logits and divergence. Measured: "
        f"above what the process held after its imports, from step {SETTLED + 1} on.",
    }


def main():
    """Measures and writes, or is one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument(
        "--output", default=record.REPOSITORY / "benchmarks" / "results"
    )
    given = parser.parse_args()
    if given.kind:
        print(json.dumps(watch(given.kind, given.folder)))
        return
    facts = record.environment()
    with tempfile.TemporaryDirectory() as folder:
        make_preset(f"{folder}/preset")
        found = measured(folder)
        model, teacher, compiled_peak = planned(folder)
    tables = [table(found, model, teacher, compiled_peak)]
    results = {
        "measured": found,
        "planned": {
            "model": dataclasses.asdict(model),
            "compiled": compiled_peak,
            "teacher": dataclasses.asdict(teacher),
        },
    }
    record.print_tables(tables)
    stem = f"teacher_memory-{keras.backend.backend()}"
    for path in record.write(given.output, stem, facts, results, tables):
        print(f"written: {path}")


if __name__ == "__main__":
    main()
