"""In which types a GGUF file's tensors are written, and that they are those."""

import numpy as np
import pytest

from keras_idea.errors import ExportRefused
from keras_idea.export import export_gguf
from keras_idea.lm.export import compare
from keras_idea.lm.export.gguf import layouts as gguf_layouts
from keras_idea.lm.export.gguf import types as gguf_types
from tests.support.gguf_models import tiny
from tests.support.gguf_reading import logits_of, read
from tests.support.hub_models import tiny_lm

pytestmark = pytest.mark.usefixtures("alone")


IDS = np.random.default_rng(0).integers(0, 64, (2, 24)).astype("int32")


def q8_0_by_hand(rows):
    """Q8_0 in float64: the values that are read, and the bytes of the file.

    Of 32 values a scale, the largest one over 127 in float16, and 32 bytes.
    """
    blocks = rows.astype("float64").reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    steps = blocks / scale
    whole = np.sign(steps) * np.floor(np.abs(steps) + 0.5)
    halves = scale.astype("float16")
    values = (whole * halves.astype("float64")).reshape(rows.shape)
    packed = np.concatenate(
        [halves.view("uint8"), whole.astype("int8").view("uint8")], axis=1
    )
    return values.astype("float32"), packed


def few_bits_by_hand(rows, bits):
    """Q4_0 or Q5_0: the values that are read, and the bytes of the file.

    The value of the largest magnitude becomes the lowest integer. The scale is a
    float16, then come the fifth bits of all, and four bits of values 16 apart.
    """
    blocks, middle = rows.astype("float32").reshape(-1, 32), 2 ** (bits - 1)
    largest = np.abs(blocks).argmax(axis=1)[:, None]
    scale = np.take_along_axis(blocks, largest, axis=1) / np.float32(-middle)
    steps = np.trunc(blocks.astype("float64") / scale + (middle + 0.5))
    whole = np.clip(steps, 0, 2 * middle - 1).astype("uint8")
    halves = scale.astype("float16")
    values = (whole.astype("float64") - middle) * halves.astype("float64")
    fifth = np.packbits(whole >> 4, axis=1, bitorder="little")
    parts = [halves.view("uint8"), *([fifth] if bits == 5 else [])]
    low = whole & 15
    packed = np.concatenate([*parts, low[:, :16] | low[:, 16:] << 4], axis=1)
    return values.reshape(rows.shape).astype("float32"), packed


def rows_by_hand(backbone):
    """Of each matrix of a Llama 3: tensor, variable, how its rows lie, and back."""
    yield "token_embd.weight", backbone.token_embedding.embeddings, np.copy, np.copy
    reverse = backbone.token_embedding.reverse_embeddings
    yield "output.weight", reverse, np.transpose, np.transpose
    for i, block in enumerate(backbone.transformer_layers):
        of = {v.path.rpartition(f"{block.name}/")[2]: v for v in block.variables}
        for name, path in {
            "ffn_gate": "feedforward_gate_dense/kernel",
            "ffn_up": "feedforward_intermediate_dense/kernel",
            "ffn_down": "feedforward_output_dense/kernel",
        }.items():
            yield f"blk.{i}.{name}.weight", of[path], np.transpose, np.transpose
        for name, part in {
            "attn_q": "query",
            "attn_k": "key",
            "attn_v": "value",
        }.items():
            kernel = of[f"self_attention/{part}/kernel"]
            order = rotated if part != "value" else in_order
            columns = order(*kernel.shape[1:])
            yield (
                f"blk.{i}.{name}.weight",
                kernel,
                lambda k, c=columns: k.reshape(len(k), -1)[:, c].T,
                lambda rows, c=columns: rows[np.argsort(c)].T,
            )
        kernel = of["self_attention/attention_output/kernel"]
        yield (
            f"blk.{i}.attn_output.weight",
            kernel,
            lambda k: k.reshape(-1, k.shape[-1]).T,
            np.transpose,
        )


def in_order(heads, size):
    return np.arange(heads * size)


def rotated(heads, size):
    """llama.cpp rotates neighbours, KerasHub the halves of a head."""
    return [
        head * size + half * size // 2 + i
        for head in range(heads)
        for i in range(size // 2)
        for half in (0, 1)
    ]


def test_q8_0_and_what_cannot_be(tmp_path):
    lm = tiny_lm("llama3", num_layers=1, hidden_dim=64, intermediate_dim=40)
    export = export_gguf(lm, tmp_path / "x.gguf", "q8_0")
    assert "1 of 9 matrices are float16" in str(export)
    assert "blk.0.ffn_down.weight" in str(export)
    fields, tensors = read(tmp_path / "x.gguf")
    assert fields["general.file_type"] == 7
    types = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert types["blk.0.ffn_up.weight"] == "Q8_0"
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.attn_norm.weight"] == "F32"
    import gguf

    kernel = lm.backbone.token_embedding.embeddings.numpy()
    found = gguf.quants.dequantize(
        tensors["token_embd.weight"].data, gguf.GGMLQuantizationType.Q8_0
    )
    blocks = kernel.reshape(-1, 32)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 127
    off = np.abs(found.reshape(-1, 32) - blocks) / step
    # Half a step, and the rounding of the scale to float16.
    assert 0.4 < off.max() < 0.5 + 127 * 2**-11


def test_q8_0_by_hand(tmp_path):
    """Each matrix of a model whose rows are whole blocks, and what they compute."""
    lm = tiny_lm("llama3", vocabulary_size=64, hidden_dim=64, intermediate_dim=96)
    export = export_gguf(lm, tmp_path / "x.gguf", "q8_0")
    assert "are float16" not in str(export)
    _, tensors = read(tmp_path / "x.gguf")
    before = compare.model_subject(lm).logits(IDS)
    matrices = {name: t for name, t in tensors.items() if len(t.shape) > 1}
    assert {t.tensor_type.name for t in matrices.values()} == {"Q8_0"}
    assert len(matrices) == 2 + 2 * 7
    for tensor, variable, rows_of, back in rows_by_hand(lm.backbone):
        expected, bytes_of = q8_0_by_hand(rows_of(variable.numpy()))
        data = matrices.pop(tensor).data
        assert data.tobytes() == bytes_of.tobytes()
        variable.assign(back(expected).reshape(variable.shape))
    assert not matrices
    found = logits_of(tmp_path / "x.gguf", IDS)
    rounded = compare.model_subject(lm).logits(IDS)
    np.testing.assert_allclose(found, rounded, rtol=0, atol=5e-5)
    # Another model than before, by what rounding to 8 bits does.
    assert 1e-3 < np.abs(rounded - before).max() / np.abs(before).max() < 0.1


@pytest.mark.parametrize("bits, file_type", [(5, 8), (4, 2)])
def test_few_bits_by_hand(tmp_path, bits, file_type):
    """Embedding and last matrix are Q8_0, and the file has few bytes."""
    lm = tiny_lm("llama3", vocabulary_size=64, hidden_dim=64, intermediate_dim=96)
    export = export_gguf(lm, tmp_path / "x.gguf", f"q{bits}_0")
    assert "are float16" not in str(export)
    fields, tensors = read(tmp_path / "x.gguf")
    assert fields["general.file_type"] == file_type
    for name, variable, rows_of, back in rows_by_hand(lm.backbone):
        ends = name in ("token_embd.weight", "output.weight")
        by_hand = q8_0_by_hand if ends else lambda rows: few_bits_by_hand(rows, bits)
        expected, bytes_of = by_hand(rows_of(variable.numpy()))
        assert tensors[name].tensor_type.name == ("Q8_0" if ends else f"Q{bits}_0")
        assert tensors[name].data.tobytes() == bytes_of.tobytes()
        variable.assign(back(expected).reshape(variable.shape))
    found = logits_of(tmp_path / "x.gguf", IDS)
    rounded = compare.model_subject(lm).logits(IDS)
    np.testing.assert_allclose(found, rounded, rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", ["qwen moe", "gpt oss"])
def test_what_chooses_experts_stays_float32(name, tmp_path):
    width = "moe_intermediate_dim" if name == "qwen moe" else "intermediate_dim"
    lm = tiny(name, hidden_dim=64, **{width: 64})
    export_gguf(lm, tmp_path / "x.gguf", "q8_0")
    _, tensors = read(tmp_path / "x.gguf")
    types = {key: tensor.tensor_type.name for key, tensor in tensors.items()}
    ends = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", ".bias")
    kept = [key for key in types if key.endswith(ends)]
    assert len(kept) == 2 * (5 if name == "qwen moe" else 9)
    assert {types[key] for key in kept} == {"F32"}
    for of in ("gate", "up", "down"):
        assert types[f"blk.0.ffn_{of}_exps.weight"] == "Q8_0"


def test_float16_that_overflows_is_refused(tmp_path):
    lm = tiny_lm("llama3", num_layers=1)
    kernel = lm.backbone.token_embedding.embeddings
    kernel.assign(np.full(kernel.shape, 7e4))
    with pytest.raises(ExportRefused, match="token_embd.weight .* F16 cannot hold"):
        export_gguf(lm, tmp_path / "x.gguf", "float16")
    assert list(tmp_path.iterdir()) == []
    export_gguf(lm, tmp_path / "x.gguf")


def test_the_table_of_positions_stays_float32():
    table = gguf_layouts.Tensor("position_embd.weight", ((np.ones((4, 32)), np.copy),))
    assert gguf_types.written(table, "q8_0").type == "F32"
