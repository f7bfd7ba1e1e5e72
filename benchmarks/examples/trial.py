"""One example, tried: found, pruned, saved, compacted, loaded; each in numbers.

`prune_example` and `load_example` run in a process each (see carry_out.py). The second
knows Keras and the example's classes, and not this package.
"""

import contextlib
import importlib
import json
import os
import pathlib
import pickle
import random
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from benchmarks.examples.example import (
    AREAS,
    BATCH,
    EPOCHS,
    PACKAGE,
    Built,
    Example,
    Part,
    all_examples,
)

#: Half of the neurons, in three steps, from the third on.
TARGET, BEGIN, STEPS = 0.5, 2, 3


def prune_example(name: str, folder: pathlib.Path) -> None:
    """Prunes an example; writes `pruned.json` and what `load_example` loads."""
    trial = Trial(name, folder)
    trial.run()


def beginning(example: Example) -> dict[str, Any]:
    """A record before anything is tried."""
    return {
        "written": example.written,
        "pairs": example.pairs,
        "others": example.others,
        "errors": {},
        "warnings": [],
    }


class Trial:
    """What was seen of an example, written down after every stage."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.example, self.folder = all_examples()[name], folder
        self.record = beginning(self.example)

    def run(self) -> None:
        """All stages; one that fails does not stop the others."""
        import keras_idea as ki

        built = self.built()
        with self.stage("found"):
            explained = ki.explain(built.model)
            self.record |= {"found": explained.taken, "left_out": explained.left_out}
            self.record["dense"] = count_dense(built.model)
        with self.stage("wide file"):
            self.save("wide", built)
        with self.stage("pruned"), self.heard():
            built = self.pruned(built)
        if "pruned" in self.record:
            with self.stage("narrow file"):
                self.save("narrow", built)
        else:
            with self.stage("Keras alone"):
                plain_fit(self.built())
            return
        twin = self.built()
        with self.stage("masked"):
            fit(twin, "off", self.record["needs groups"] is not None)
            self.record["compacted"] = {}
            for part, used in twin.used().items():
                with self.stage("compacted"):
                    self.record["compacted"][part] = compacted(used)

    def pruned(self, built: Built) -> Built:
        """Prunes in `fit`, with `groups` if it is refused without; notes the widths."""
        import keras_idea as ki

        self.record["needs groups"] = None
        try:
            return self.narrowed(built, False)
        except ki.KerasIdeaError as error:
            if built.groups is None:
                raise
            self.record["needs groups"] = " ".join(str(error).split())
            return self.narrowed(self.built(), True)

    def narrowed(self, built: Built, with_groups: bool) -> Built:
        """A run whose `fit` narrows; the record has each FFN's widths then."""
        import keras_idea as ki

        ffns = ki.find_ffns(built.model)
        if with_groups and built.groups is not None:
            ffns = [ffn for ffn in ffns if built.groups(ffn)]
        before = [ffn.hidden_dim for ffn in ffns]
        fit(built, "end", with_groups)
        for ffn, width in zip(ffns, before, strict=True):
            assert ffn.hidden_dim == ffn.width < width, ffn
        self.record["pruned"] = {
            ffn.name: [width, ffn.width]
            for ffn, width in zip(ffns, before, strict=True)
        }
        return built

    def built(self) -> Built:
        """The model, the same each time, called once."""
        keras.backend.clear_session()
        random.seed(0)  # of which Keras draws its seeds; its own function imports all
        np.random.seed(0)
        built = self.example.build()
        for part in built.used().values():
            outputs(part)
        if not built.model.built and type(built.model).call is not keras.Model.call:
            built.model(built.first())
        return built

    @contextlib.contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """What is raised becomes the record's, by the name of the stage."""
        try:
            yield
        except Exception as error:
            self.record["errors"].setdefault(stage, words(error))
            (self.folder / "traces.txt").open("a").write(traceback.format_exc())
        (self.folder / "pruned.json").write_text(json.dumps(self.record))

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Warnings that tell of a width or a config are the record's."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield
        messages = [" ".join(str(w.message).split()) for w in heard]
        own = [t for t in messages if "config" in t or "keras_idea" in t]
        self.record["warnings"] += dict.fromkeys(own)

    def save(self, kind: str, built: Built) -> None:
        """Files of the parts, their inputs and outputs."""
        for name, part in built.used().items():
            path = self.folder / f"{kind}-{name}"
            found = outputs(part)
            steady = [a == b for a, b in zip(found, outputs(part), strict=True)]
            part.layer.save(path.with_suffix(".keras"))
            path.with_suffix(".pickle").write_bytes(
                pickle.dumps((part.inputs, found, steady))
            )


def count_dense(model: Any) -> int:
    """How many Dense layers a model has."""
    from keras_idea.keras_private.layers import walk

    return sum(isinstance(layer, keras.layers.Dense) for layer in walk(model))


def fit(built: Built, compact: str, with_groups: bool = False) -> None:
    """A run that prunes, and goes on for some steps."""
    import keras_idea as ki

    more = {"groups": built.groups} if with_groups else {}
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact=compact, **more)
    plain_fit(built, prune)


def plain_fit(built: Built, *callbacks: Any) -> None:
    """Keras's own."""
    history = built.model.fit(
        built.x,
        built.y,
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
    for name, values in history.history.items():
        assert np.isfinite(values).all(), f"{name} is {values}"


def outputs(part: Part) -> list[np.ndarray]:
    """All outputs of a part on its inputs, flat."""
    found = part.layer(*part.inputs, training=False)
    return [
        np.ravel(keras.ops.convert_to_numpy(output))
        for output in keras.tree.flatten(found)
    ]


def compacted(part: Part) -> float:
    """How far the outputs of the compacted part are from those of the masked one."""
    import keras_idea as ki

    wide = outputs(part)
    steady = [a == b for a, b in zip(wide, outputs(part), strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        narrow = ki.compact(part.layer)
    ffns = ki.find_ffns(part.layer)
    if ffns:
        counts = part.layer.count_params(), narrow.count_params()
        assert counts[1] < counts[0], f"{counts[0]} parameters became {counts[1]}"
    return difference(wide, outputs(Part(narrow, part.inputs)), steady)


def difference(one: list, other: list, steady: list) -> float:
    """The greatest, where a model says the same twice."""
    gaps = [
        np.abs(a.astype("float64") - b)[s]
        for a, b, s in zip(one, other, steady, strict=True)
    ]
    values = np.concatenate(gaps)
    assert len(values), "all outputs are random"
    assert np.isfinite(values).all(), "the outputs are not finite"
    return float(values.max())


def load_example(name: str, folder: pathlib.Path) -> None:
    """Loads what `prune_example` saved, with Keras alone; writes `loaded.json`."""
    all_examples()
    found: dict[str, Any] = {"wide": {}, "narrow": {}}
    for kind, parts in found.items():
        for path in sorted(folder.glob(f"{kind}-*.pickle")):
            parts[path.stem.partition("-")[2]] = _loaded(path.with_suffix(".keras"))
    assert not any(module.startswith("keras_idea") for module in sys.modules)
    (folder / "loaded.json").write_text(json.dumps(found))


def _loaded(path: pathlib.Path) -> float | str:
    """The difference of the outputs, or the error's words."""
    try:
        inputs, expected, steady = pickle.loads(
            path.with_suffix(".pickle").read_bytes()
        )
        loaded = keras.saving.load_model(path, own_classes(), safe_mode=False)
        return difference(expected, outputs(Part(loaded, inputs)), steady)
    except Exception as error:
        return words(error)


def words(error: Exception) -> str:
    """The type of an error, and the beginning of what it says."""
    plain = re.sub(r"\x1b\[\d*m", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {plain}"[:600]


def own_classes() -> dict[str, Any]:
    """Classes and functions of all examples, as a user of unregistered ones does."""
    modules = [importlib.import_module(f"{PACKAGE}.{area}") for area in AREAS]
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if getattr(found, "__module__", None) == module.__name__
    }


def call(function: str, name: str, folder: pathlib.Path, log: pathlib.Path) -> None:
    """Runs one of the functions of this file, in a process of its own."""
    with log.open("a") as file:
        for output in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), output.fileno())
    chosen: Callable = getattr(importlib.import_module(__name__), function)
    chosen(name, folder)
    (folder / f"{function}.seconds").write_text(str(time.process_time()))
