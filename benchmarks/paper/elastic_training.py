"""Trains the models of one way to come by several widths, and judges them."""

import dataclasses
import gc
import time

import keras

import keras_idea as ki
from benchmarks.paper.build import cross_entropy, new_model, new_optimizer
from benchmarks.paper.checkpoint import take_checkpoint
from benchmarks.paper.elastic_ways import (
    Branches,
    Joint,
    Scratch,
    Way,
    joint_steps,
    names_of,
    paid_flops,
)
from benchmarks.paper.family import members
from benchmarks.paper.family_plan import Family
from benchmarks.paper.initial import initialise
from benchmarks.paper.plan import Stage
from benchmarks.paper.run_stage import run_stage


def carry_out(way: Way, family: Family, corpus, seed: int, judge) -> dict[str, dict]:
    """The models of one way, at the peak and the curve of the family.

    Args:
        way: `Joint`, `Branches` or `Scratch`.
        family: `Family`.
        corpus: `Corpus`.
        seed: int.
        judge: function of a `Checkpoint` that returns bits per byte.

    Returns:
        dict of a width, as a string, to a dict: bits, width, tokens, flops.
    """
    if isinstance(way, Branches):
        made = members(way.name, family, corpus, seed, judge).values()
        return {str(record["width"]): record for record in made}
    if isinstance(way, Scratch):
        return _scratch(way, family, corpus, seed, judge)
    return _joint(way, family, corpus, seed, judge)


def _scratch(way, family, corpus, seed, judge):
    stage = family.scratch(way.width, way.share * paid_flops(family))
    end = run_stage(stage, family.scale, corpus, seed)
    tokens = stage.steps * family.scale.tokens_a_step
    return {str(way.width): _record(end, tokens, family.flops([stage]), judge)}


def _joint(way: Joint, family, corpus, seed, judge):
    """Trains all widths with the callback; each member is what it slices."""
    scale, widths = family.scale, family.widths
    alone, steps, spent = joint_steps(way, family, seed)
    rate = family.scratch(widths[0], paid_flops(family)).rate
    rate = dataclasses.replace(rate, total=steps)
    stage = Stage("train", widths[0], steps, 0, rate, "adamw")
    keras.utils.set_random_seed(seed)
    model = new_model(scale, widths[0])
    initialise(model, scale, seed)
    optimizer = new_optimizer(stage, scale, rate.schedule())
    model.compile(optimizer=optimizer, loss=cross_entropy())
    names = names_of(family)
    elastic = ki.ElasticCallback(
        names, begin_step=alone, sample=way.sample, teacher=way.teacher, seed=seed
    )
    batches = corpus.batches(
        seed=seed, batch_size=scale.batch_size, length=scale.sequence_length
    )
    model.fit(
        batches,
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=[elastic],
        verbose=0,
    )
    models = {widths[0]: model}
    models |= {width: elastic.sliced(name) for name, width in names.items()}
    tokens = steps * scale.tokens_a_step
    found = {
        str(width): _record(take_checkpoint(each, width, {}), tokens, spent, judge)
        for width, each in models.items()
    }
    # A model is a circle of references; the next one wants its memory.
    del model, models, optimizer, elastic
    gc.collect()
    return found


def _record(end, tokens, flops, judge):
    return {"bits": judge(end), "width": end.width, "tokens": tokens, "flops": flops}


def timed(way: Way, family: Family, corpus, seed: int, judge) -> dict:
    """What is kept of `carry_out`: the members, and the seconds that it took."""
    began, cpu_began = time.perf_counter(), time.process_time()
    made = carry_out(way, family, corpus, seed, judge)
    return {
        "members": made,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu_began, 1),
    }
