"""The tables of families: a family each is measured as the whole table is."""

import pytest

from benchmarks import families


def test_a_family_is_tried(tmp_path):
    name, loads, prunes, difference, gguf = families.row_of("llama", tmp_path)
    assert (name, loads, prunes, gguf) == ("`llama`", "Llama3CausalLM", "yes", "yes")
    assert float(difference) < 1e-5


def test_llama_cpp_computes_what_is_exported(tmp_path):
    pytest.importorskip("llama_cpp")
    from benchmarks import served

    found = served.family("llama", ["What is written?"])["float32"]
    assert found["logits differ by"] < 1e-3 and not found["texts of other ids"]
    assert found["greedy tokens"] == found["greedy tokens equal"]
