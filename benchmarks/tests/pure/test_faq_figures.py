"""The figures of docs/faq.md on quantization, computed from the records."""

import json

from tests.support.recorded import RESULTS, read


def page():
    return " ".join(read("docs/faq.md").split())


def served(name):
    """One dict a model, of its types."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record.get("files", record.get("models"))


def losses(models, kind, bits):
    """What a type costs each model, from the least to the most."""
    return sorted(model[kind][bits] - model["float32"][bits] for model in models)


def test_what_a_type_costs():
    said = page()
    gguf = served("serve_bits")
    assert f"at most +{losses(gguf, 'q8_0', 'bits a byte')[-1]:.4f} bits" in said
    least, _, most = losses(gguf, "q5_0", "bits a byte")
    assert f"+{least:.3f} to +{most:.3f}" in said
    keras = {
        kind: losses(served("serve_in_keras"), kind, "bits per byte")
        for kind in ("int8", "int4", "gptq")
    }
    assert f"+{keras['int8'][0]:.4f} to +{keras['int8'][-1]:.4f}" in said
    for kind, words in (("int4", "int4 cost"), ("gptq", "GPTQ")):
        assert f"{words} {keras[kind][0]:.3f} to {keras[kind][-1]:.3f}" in said


def test_prune_or_quantize():
    """In the order in which the page names them, of rising loss."""
    models = {model["float32"]["neurons"]: model for model in served("serve_bits")}
    chosen = [
        models[n][kind] for n, kind in ((192, "q5_0"), (288, "q4_0"), (96, "q8_0"))
    ]
    bits = [one["bits a byte"] for one in chosen]
    assert bits == sorted(bits)
    said = page()
    places = [
        said.index(f"({one['bytes'] / 2**20:.2f} MiB, {one['bits a byte']:.3f}")
        for one in chosen
    ]
    assert places == sorted(places)
