"""The run file: a TOML file, one pydantic model per table.

A key's default and meaning stand in its field; docs/runs.md is generated from them.
Resuming accepts another value of a key that `may_change`: it cannot affect results.
"""

import math
import os
import pathlib
import tomllib
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from keras_idea._lm.data.make_tokenizer import check_tokenizer
from keras_idea._validation import check_choice, did_you_mean, require
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.methods import METHODS

# Steps and shapes are counted in int32.
_MOST = 2**31 - 1
_Count: TypeAlias = Annotated[int, Field(ge=1, le=_MOST)]
_Steps: TypeAlias = Annotated[int, Field(ge=0, le=_MOST)]
_Rate: TypeAlias = Annotated[float, Field(ge=0)]
_Positive: TypeAlias = Annotated[float, Field(gt=0)]
_Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
# Units to keep, or the share of them.
_Kept: TypeAlias = _Count | _Fraction
_Text: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")
]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Paths: TypeAlias = Annotated[
    list[_Text], Field(min_length=1), BeforeValidator(_listed)
]
_Kind: TypeAlias = Literal["neurons", "kv_groups"]


def _of(name: str, known: Any) -> AfterValidator:
    return AfterValidator(lambda value: check_choice(name, value, tuple(known)))


def _key(default: Any, says: str, may_change: bool = False) -> Any:
    extra: Any = {"may_change": may_change}
    return Field(default, description=says, json_schema_extra=extra)


class Table(BaseModel):
    """A table of a run file; rejects unknown keys, and values of another type."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class Model(Table):
    """`[model]`: what is trained, and its shape before and after pruning."""

    hub: Annotated[str, _of("model.hub", HUB_FAMILIES)] = _key(
        "llama3",
        f"a KerasHub family, from random weights: {', '.join(HUB_FAMILIES)}",
    )
    preset: _Text | None = _key(
        None,
        "instead, a checkpoint: a KerasHub preset, a Hugging Face folder or handle, "
        "or a GGUF file; it sets every size up to `hidden_dim`",
    )
    tokenizer: Literal["bytes", "bpe", "sentencepiece"] = _key(
        "bytes", "bytes, or the tokenizer of the family, trained on the text"
    )
    vocabulary_size: _Count | None = _key(None, "tokens of a trained tokenizer (4096)")
    model_dim: _Count = _key(64, "width of the residual stream")
    num_layers: _Count = _key(2, "number of blocks")
    num_heads: _Count = _key(4, "attention heads; 2 × num_heads divides model_dim")
    num_key_value_heads: _Count | None = _key(
        None, "for grouped attention (default: num_heads; gemma: 1)"
    )
    hidden_dim: _Count = _key(512, "FFN width at the start")
    target_dim: _Kept | None = _key(
        None, "FFN width at the end: a number, or a fraction such as 0.375"
    )
    targets: Annotated[dict[_Kind, _Kept], Field(min_length=1)] | None = _key(
        None, "instead, to prune heads too: { neurons = 192, kv_groups = 0.5 }"
    )
    target_parameters: _Count | None = _key(None, "instead, the most parameters")
    kinds: Annotated[list[_Kind], Field(min_length=1)] = _key(
        ["neurons"], 'what target_parameters prunes: "neurons", "kv_groups" or both'
    )
    round_to: _Count = _key(1, "widths from fractions and limits are multiples of it")
    sequence_length: Annotated[int, Field(ge=2, le=_MOST)] = _key(
        64, "tokens per sequence"
    )

    @property
    def key_value_heads(self) -> int:
        """Key/value heads of a model that begins from nothing."""
        own = HUB_FAMILIES[self.hub].key_value_heads
        return self.num_key_value_heads or own or self.num_heads

    @property
    def pruned_kinds(self) -> list[_Kind]:
        """The kinds of units that the run prunes."""
        if self.target_parameters is not None:
            return self.kinds
        return ["neurons"] if self.targets is None else list(self.targets)


class Data(Table):
    """`[data]`: what the model reads."""

    paths: _Paths = _key(
        ["stdlib"],
        "files or folders: text, .jsonl, .parquet, also .zst and .gz; or "
        '"stdlib", the source code of Python',
    )
    dataset: _Text | None = _key(
        None, "instead, a Hugging Face dataset: NAME:CONFIG@REVISION"
    )
    field: _Text = _key("text", "the key or column of a record that holds its text")
    documents: Literal["file", "paragraphs", "lines"] = _key(
        "file", "what a document of a text file is: file, paragraphs or lines"
    )
    pattern: _Text | None = _key(None, 'the files of a folder to read, such as "*.py"')
    chat: bool = _key(False, "conversations; the loss counts the responses")
    template: _Text | None = _key(None, "the chat template (default: the checkpoint's)")
    validation_paths: _Paths | None = _key(None, "held-out files (default: a fraction)")
    validation_fraction: Annotated[float, Field(ge=0.001, le=0.5)] = _key(
        0.05, "the fraction that is held out"
    )
    validation_batches: _Count = _key(32, "batches per validation")
    max_megabytes: _Positive | None = _key(None, "the most text to read")
    batch_size: _Count = _key(32, "sequences per optimizer step")
    cache: _Text = _key("runs/token-cache", "folder of the tokens", may_change=True)


class Budget(Table):
    """`[budget]`: optimizer steps of the stages."""

    enlarge_steps: _Steps = _key(500, "steps of the wide stage (with `preset`: 0)")
    prune_steps: _Count = _key(250, "steps of the pruning stage")
    recover_steps: _Steps = _key(250, "steps of the recovery stage")

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.enlarge_steps + self.prune_steps + self.recover_steps


class Optimizer(Table):
    """`[optimizer]`: one warm-up and one cosine over the whole budget."""

    name: Literal["adamw", "lion", "muon"] = _key("adamw", "adamw, lion or muon")
    peak_learning_rate: _Rate = _key(3e-3, "the peak; Lion needs about a tenth")
    end_learning_rate: _Rate = _key(3e-5, "the end of the cosine, after the last step")
    warmup_steps: _Steps = _key(50, "steps from 0 to the peak")
    weight_decay: _Rate = _key(0.01, "weight decay")
    global_clipnorm: _Positive | None = _key(None, "the most norm of all gradients")
    gradient_accumulation_steps: _Count = _key(
        1, "splits the batch of a step into parts: less memory"
    )


class Distillation(Table):
    """`[distillation]`: trains on a teacher's logits in addition to the text."""

    teacher: _Text | None = _key(None, "a run, or a checkpoint with the same tokens")
    temperature: _Positive = _key(1.0, "divides the logits of both models")
    weight: _Fraction = _key(0.5, "the teacher's share of the loss")
    top_k: _Count | None = _key(None, "only the teacher's most likely tokens")


class Pruning(Table):
    """`[pruning]`: which units go, and when the model becomes narrow."""

    method: Annotated[str, _of("pruning.method", METHODS)] = _key(
        "sensitivity", "sensitivity, activation, learned_mask, magnitude or random"
    )
    compact: Literal["end", "progressive", "off"] = _key(
        "end", "when `fit` narrows the model: end (of pruning), progressive or off"
    )
    update_every: _Count = _key(1, "steps between two changes of the mask")
    by_weights: bool = _key(False, "with activation: weighs them by the weights")
    refit_windows: _Steps = _key(
        0, "with activation: sequences for the refit; 0: no refit"
    )


class Distribution(Table):
    """`[distribution]`: the devices of one process or of several, on JAX."""

    data: _Count = _key(1, "devices that share the sequences of a step", True)
    model: _Count = _key(1, "devices that share the kernels", True)


class Sample(Table):
    """`[sample]`: the text that the narrow model writes at the end."""

    prompt: _Text | None = _key(None, "how it begins (default: as held-out text)", True)
    tokens: _Count = _key(320, "new tokens", True)
    temperature: _Rate = _key(0.8, "0 always takes the most likely token", True)


class RunTable(Table):
    """`[run]`: where the results go, and how the run computes."""

    output: _Text = _key("runs/demo", "the run folder (default: runs/NAME)", True)
    seed: Annotated[int, Field(ge=0, le=_MOST)] = _key(
        0, "seed of the weights, the batches and the sample"
    )
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = _key(
        "float32", "float32, mixed_bfloat16 or mixed_float16"
    )
    rematerialize: bool = _key(False, "computes blocks twice: less memory", True)
    validate_every: _Count = _key(100, "steps between validations, and checkpoints")
    tensorboard: bool = _key(False, "writes TensorBoard logs", True)
    compare_from_scratch: bool = _key(
        True, "also trains the scratch baseline (with `preset`: false)", True
    )


class RunConfig(Table):
    """A whole run.

    Example:
    >>> config = load_config("run.toml")
    >>> config.budget.total_steps
    12
    """

    model: Model = Model()
    data: Data = Data()
    budget: Budget = Budget()
    optimizer: Optimizer = Optimizer()
    distillation: Distillation = Distillation()
    pruning: Pruning = Pruning()
    distribution: Distribution = Distribution()
    sample: Sample = Sample()
    run: RunTable = RunTable()

    @property
    def parts(self) -> int:
        """The parts into which the batch of an optimizer step is cut."""
        return self.optimizer.gradient_accumulation_steps

    def with_output(self, output: str) -> "RunConfig":
        """The same run, its results to another folder."""
        run = self.run.model_copy(update={"output": output})
        return self.model_copy(update={"run": run})

    def changes_from(self, other: "RunConfig") -> list[str]:
        """Says for each key that affects results how it differs from another run."""
        changed = []
        for table, keys in self.tables().items():
            for key, field in keys.items():
                extra: Any = field.json_schema_extra
                was, now = (getattr(getattr(c, table), key) for c in (other, self))
                if was != now and not extra["may_change"]:
                    changed.append(f"{table}.{key} was {was!r} and is {now!r}")
        return changed

    @classmethod
    def tables(cls) -> dict[str, dict[str, Any]]:
        """The pydantic fields of each table, by name."""
        found = {}
        for name, field in cls.model_fields.items():
            table: Any = field.annotation
            found[name] = table.model_fields
        return found

    def to_toml(self) -> str:
        """TOML that `load_config` reads back to an equal run."""
        given = self.model_dump(exclude_none=True)
        if self.model.preset is not None:
            for name in (*_SIZES, *_OF_A_PRESET):
                given["model"].pop(name, None)
        return require("tomli_w", "Writing a run's config", "cli").dumps(given)


_SIZES = ("model_dim", "num_layers", "num_heads", "num_key_value_heads", "hidden_dim")
_OF_A_PRESET = ("hub", "tokenizer", "vocabulary_size")
_TARGETS = ("target_dim", "targets", "target_parameters")


def load_config(path: str | os.PathLike | None = None) -> RunConfig:
    """Reads a run file.

    Example:
    >>> load_config().model.hidden_dim
    512
    """
    path = pathlib.Path(path or pathlib.Path(__file__).with_name("demo.toml"))
    try:
        return parse_config(path.read_text(encoding="utf-8-sig"), path.stem)
    except (OSError, ValueError) as error:  # ConfigError is a ValueError
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, name: str = "run") -> RunConfig:
    """Reads TOML text; the run's output is `runs/NAME` by default."""
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None
    wrote = {
        f"{table}.{key}"
        for table, keys in given.items()
        if isinstance(keys, dict)
        for key in keys
    }
    _add_defaults(given, name)
    try:
        config = RunConfig(**given)
    except ValidationError as error:
        raise ConfigError("\n".join(map(_line, error.errors()))) from None
    if found := [line for line in _conflicts(config, wrote) if line]:
        raise ConfigError("\n".join(found))
    return config


def _add_defaults(given: dict[str, Any], name: str) -> None:
    """Sets defaults that depend on other keys."""
    tables = {t: given.setdefault(t, {}) for t in ("model", "budget", "run")}
    if not all(isinstance(table, dict) for table in tables.values()):
        return
    model, budget, run = tables.values()
    run.setdefault("output", f"runs/{name}")
    if model.get("preset") is not None:
        budget.setdefault("enlarge_steps", 0)
        run.setdefault("compare_from_scratch", False)
    if not any(key in model for key in _TARGETS):
        model["target_dim"] = 192


def _line(error: Any) -> str:
    """One line about what pydantic found."""
    where = [str(part) for part in error["loc"][:2]]
    tables, hint = RunConfig.tables(), ""
    if error["type"] == "extra_forbidden":
        known = tables if len(where) == 1 else tables.get(where[0], {})
        homes = [table for table, keys in tables.items() if where[-1] in keys]
        hint = f" Move it under [{homes[0]}]." if homes else ""
        hint = did_you_mean(where[-1], known) or hint
        return f"There is no key {'.'.join(where)!r} in a run file.{hint}"
    said = error["msg"].removeprefix("Value error, ")
    if said.startswith("`"):
        return said
    return f"`{'.'.join(where)}`: {said}. Received: {error['input']!r}."


def _conflicts(config: RunConfig, wrote: set[str]) -> Any:
    """Yields a sentence for each pair of keys that contradict each other."""
    model, data, budget, run = config.model, config.data, config.budget, config.run
    targets = tuple(f"model.{key}" for key in _TARGETS)
    alone = [("data.paths", "data.dataset"), targets]
    sizes = (*_SIZES, *_OF_A_PRESET)
    alone += [("model.preset", f"model.{key}") for key in sizes]
    for keys in alone:
        both = [f"`{key}`" for key in keys if key in wrote]
        if len(both) > 1:
            yield f"Give only one of {' and '.join(both)}."
    for key, needed in {
        "data.template": "data.chat",
        "model.kinds": "model.target_parameters",
        "distillation.weight": "distillation.teacher",
        "distillation.temperature": "distillation.teacher",
        "distillation.top_k": "distillation.teacher",
    }.items():
        table, name = key.split(".")
        default = getattr(getattr(RunConfig(), table), name)
        value = getattr(getattr(config, table), name)
        if key in wrote and value != default and needed not in wrote:
            yield f"`{key}` needs `{needed}`, which is not given."
    if model.preset is None:
        yield from _wrong_sizes(model)
    step = config.parts * config.distribution.data
    if data.batch_size % step:
        yield (
            f"`data.batch_size` must be a multiple of {step}, the parts of a step times"
            f" the devices along the data axis. Received: {data.batch_size}."
        )
    for key in ("by_weights", "refit_windows"):
        if getattr(config.pruning, key) and config.pruning.method != "activation":
            yield f'`pruning.{key}` needs `pruning.method = "activation"`.'
    every, steps = run.validate_every, budget.total_steps
    if steps % every or budget.enlarge_steps % every:
        common = math.gcd(steps, budget.enlarge_steps)
        divisors = [n for n in range(1, common + 1) if common % n == 0]
        near = min(divisors, key=lambda n: abs(n - every))
        yield (
            f"`run.validate_every` must divide the {budget.enlarge_steps} steps of the "
            f"wide stage and all {steps}. Received: {every}. Set it to {near}."
        )


def _wrong_sizes(model: Model) -> Any:
    try:
        check_tokenizer(
            model.hub, model.tokenizer, model.vocabulary_size, "model.tokenizer"
        )
    except ConfigError as error:
        yield str(error)
    if model.model_dim % (2 * model.num_heads):
        yield (
            "`model.model_dim` must be a multiple of 2 × `num_heads`. Received: "
            f"{model.model_dim}, with {model.num_heads} heads."
        )
    if model.num_heads % model.key_value_heads:
        yield (
            "`model.num_key_value_heads` must divide `num_heads`. Received: "
            f"{model.key_value_heads} and {model.num_heads}."
        )
