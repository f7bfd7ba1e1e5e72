"""A run before its first step: text, tokenizer and models."""

import functools
from collections.abc import Callable

import keras

from keras_idea.callbacks.monitor.event_log import tensorboardx
from keras_idea.lm.data.text import open_text
from keras_idea.lm.data.tokens import Tokens
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.timeline import make_timeline
from keras_idea.lm.runs.models.build import decoder_models
from keras_idea.lm.runs.models.hub_models import hub_models
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.run import Run
from keras_idea.validation import plural

# Of a text that is repeated so often the last passes are still worth almost as much as
# new text; far beyond that nothing (Muennighoff et al., 2023, arXiv:2305.16264).
_PASSES = 4


def prepare(config: RunConfig, folder: RunFolder) -> Run:
    """Reads a run's text and gets its models ready to be made.

    Nothing is written to the folder yet.

    Raises:
        ConfigError: if the model cannot be made.
        MissingPackage: if a package of an extra that the run needs is not installed.
        TextError: if there is no text, or less than a sequence of it.
    """
    if config.run.tensorboard:
        tensorboardx()  # before the run folder is claimed
    make_models = hub_models if config.model.uses_keras_hub else decoder_models
    models = make_models(config, _text(config))
    models.corpus.check_length(config.model.sequence_length)
    timeline = make_timeline(config, models.at_start, models.at_end)
    return Run(config, models, timeline, folder)


_STARTED = "; every sequence begins with the start token"


def run_summary(run: Run) -> str:
    """What a run reads, and where it goes, in three lines; before them warnings."""
    corpus, times = run.models.corpus, run.passes
    lines = [
        f"Text: {corpus.description} ({plural(len(corpus.train), 'token')} to train "
        f"on, {len(corpus.held_out):,} held out), read {times:,.3g} "
        f"{'time' if times == 1 else 'times'}",
        f"Vocabulary: {plural(_known_tokens(run), 'token')}, "
        f"{corpus.train_bytes_per_token():.2f} bytes per token"
        f"{_STARTED if run.models.start_id is not None else ''}",
        f"Backend: {keras.backend.backend()}. Run folder: {run.folder.shown}",
    ]
    if times > _PASSES:
        steps = int(_PASSES / times * run.timeline.total)
        lines.insert(
            0,
            f"Warning: the run reads its text {times:,.0f} times. More than about "
            f"{_PASSES} times adds little, because the model memorizes the text. Give "
            f"{times / _PASSES:,.0f} times as much text, or use at most "
            f"{plural(max(1, steps), 'step')} in [budget].",
        )
    config = run.config
    prunes = not config.elastic.given
    if prunes and not config.budget.enlarge_steps and config.model.preset is None:
        lines.insert(
            0,
            "Warning: budget.enlarge_steps=0 prunes a new model, whose weights are "
            "random, so there is nothing to rank its neurons by. Set `enlarge_steps` "
            f"to {config.budget.total_steps // 2}, half of all steps, or set "
            "`model.preset` to prune a trained model.",
        )
    return "\n".join(lines)


def _known_tokens(run: Run) -> int:
    # KerasHub's tokenizer may demand tokens that a model does not have.
    known = run.outline.vocabulary_size
    return min(len(run.models.corpus.vocabulary.token_bytes), known)


def _text(config: RunConfig) -> Callable[..., Tokens]:
    """Opens the run's text when it is given a `vocabulary`."""
    data, corpus, chat = config.data, config.corpus, config.chat
    fraction = {"validation_fraction": data.validation_fraction}
    if chat.given:
        return functools.partial(
            open_text,
            paths=chat.paths,
            validation_paths=chat.validation_paths,
            chat=True,
            template=chat.template or config.model.preset,
            length=config.model.sequence_length,
            cache=chat.cache,
            **fraction,
        )
    if corpus.given:
        return functools.partial(
            open_text,
            paths=corpus.paths,
            dataset=corpus.dataset,
            dataset_config=corpus.dataset_config,
            dataset_split=corpus.dataset_split,
            dataset_revision=corpus.dataset_revision,
            field=corpus.field,
            documents=corpus.documents,
            pattern=corpus.pattern,
            validation_paths=corpus.validation_paths,
            cache=corpus.cache,
            **fraction,
        )
    return functools.partial(
        open_text, paths=data.text, max_megabytes=data.max_megabytes, **fraction
    )
