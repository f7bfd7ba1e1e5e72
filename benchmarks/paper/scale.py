"""How large the tables are carried out: model, text, steps."""

import dataclasses
import types

from keras_idea.models import DecoderConfig

#: Texts are read byte by byte.
VOCABULARY_SIZE = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The size that all cells of a table share.

    Attributes:
        name: str, what the command line calls it.
        model_dim, num_layers, num_heads: int, shape of the decoder.
        target_dim: int, neurons of the final FFN of a cell with `target=1`.
        sequence_length: int, bytes the model sees at once.
        batch_size: int, sequences a step.
        total_steps: int, optimizer steps of a cell with `budget=1`.
        warmup_steps: int, steps of every warm-up.
        peak_learning_rate, end_learning_rate: float, of every schedule.
        weight_decay: float, decoupled.
        dtype: str, policy of the layers.
        calibration_samples: int, sequences that the activation method measures.
        validation_windows: int or None, sequences of one validation; None: all.
        curve_points: int, points of a loss curve of `total_steps`.
        rope_max_wavelength: float, of the rotary embedding.
        embedding_stddev: float, of the initial embedding.
        beta_2: float, of AdamW.
        nested: float or None, the widest FFN, in units of the target: all widths begin
            with the first of its neurons. None: with values of their own.
        anneal: bool, whether cosines end at `end_learning_rate` after any warm-up; the
            paper's, as it is printed, ends higher the longer the warm-up is.
        note: str, hardware and time to expect.
    """

    name: str
    model_dim: int
    num_layers: int
    num_heads: int
    target_dim: int
    sequence_length: int
    batch_size: int
    total_steps: int
    warmup_steps: int
    peak_learning_rate: float = 3e-3
    end_learning_rate: float = 3e-5
    weight_decay: float = 0.01
    dtype: str = "float32"
    calibration_samples: int = 1024
    validation_windows: int | None = None
    curve_points: int = 300
    rope_max_wavelength: float = 10000.0
    embedding_stddev: float = 0.02
    beta_2: float = 0.999
    nested: float | None = None
    anneal: bool = False
    note: str = ""

    @property
    def tokens_a_step(self) -> int:
        """int, bytes that one optimizer step reads."""
        return self.batch_size * self.sequence_length

    def width(self, units: float) -> int:
        """Neurons of an FFN of so many times `target_dim`."""
        return max(1, round(units * self.target_dim))

    def decoder_config(self, width: int) -> DecoderConfig:
        """The decoder's shape with so many neurons in each FFN."""
        return DecoderConfig(
            vocabulary_size=VOCABULARY_SIZE,
            model_dim=self.model_dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=width,
            sequence_length=self.sequence_length,
            rope_max_wavelength=self.rope_max_wavelength,
        )

    def identity(self) -> dict:
        """Dict of everything that a result depends on: no name, no note.

        What was added later counts only where it is not what it was before: the cells
        of earlier versions keep their names.
        """
        later = "rope_max_wavelength embedding_stddev beta_2 nested anneal".split()
        default = {field.name: field.default for field in dataclasses.fields(self)}
        return {
            key: value
            for key, value in dataclasses.asdict(self).items()
            if key not in ("name", "note", "curve_points")
            and not (key in later and value == default[key])
        }


# 26,232 parameters when it is narrow; `total_steps` are 1.015 tokens for each.
_MAP = Scale(
    name="map",
    model_dim=24,
    num_layers=2,
    num_heads=4,
    target_dim=64,
    sequence_length=32,
    batch_size=32,
    total_steps=26,
    warmup_steps=200,
    peak_learning_rate=8e-3,
    end_learning_rate=8e-5,
    curve_points=1,
    # These four and the long warm-up narrow the spread between seeds threefold.
    rope_max_wavelength=32.0,
    embedding_stddev=0.5,
    beta_2=0.95,
    nested=16 / 3,
    note="one CPU core, seconds to minutes a cell",
)

SCALES = types.MappingProxyType(
    {
        # The regime in which the paper's order shows (0.14M to 0.26M parameters,
        # 3.1M bytes): wide enough to prune, too short to train out.
        "tiny": Scale(
            name="tiny",
            model_dim=64,
            num_layers=2,
            num_heads=4,
            target_dim=192,
            sequence_length=64,
            batch_size=32,
            total_steps=1500,
            warmup_steps=50,
            note="2 CPU cores, one seed of a table in 5 to 30 minutes",
        ),
        "small": Scale(
            name="small",
            model_dim=128,
            num_layers=4,
            num_heads=4,
            target_dim=384,
            sequence_length=128,
            batch_size=16,
            total_steps=5000,
            warmup_steps=100,
            note="2 CPU cores, one seed of a table in a night",
        ),
        # The paper's 300M model (24 layers there), as wide as its best enlargement.
        "gpu": Scale(
            name="gpu",
            model_dim=1024,
            num_layers=12,
            num_heads=16,
            target_dim=3072,
            sequence_length=512,
            batch_size=64,
            total_steps=600,
            warmup_steps=30,
            peak_learning_rate=1e-3,
            end_learning_rate=1e-5,
            dtype="mixed_bfloat16",
            note="one large GPU, one seed of a table in about 25 minutes",
        ),
        "map": _MAP,
        # The map's model for 60 tokens a parameter: effects of 0.002 bits show.
        "mini": dataclasses.replace(
            _MAP,
            name="mini",
            total_steps=1560,
            peak_learning_rate=3.2e-2,
            end_learning_rate=3.2e-4,
            curve_points=100,
            anneal=True,
            note="one CPU core, one seed of a table in one to eight minutes",
        ),
    }
)
