"""The description of a run: a TOML file's tables, checked, as frozen dataclasses."""

from keras_idea.runs.config.run_config import RunConfig, load_config, parse_config

__all__ = ["RunConfig", "load_config", "parse_config"]
