"""The description of a run: a TOML file's tables, checked, as frozen dataclasses."""

from keras_idea.lm.runs.config.parse import load_config, parse_config
from keras_idea.lm.runs.config.run_config import RunConfig

__all__ = ["RunConfig", "load_config", "parse_config"]
