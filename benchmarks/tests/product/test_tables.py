"""The tables of families: a family each is measured as the whole table is."""

import pytest

from benchmarks import families


@pytest.mark.parametrize(
    "kind", ["neurons", pytest.param("kv_groups", marks=pytest.mark.daily())]
)
def test_a_family_is_measured(kind, tmp_path):
    found = families.cells("llama", tmp_path, kind)
    assert tuple(sorted(found)) == tuple(sorted(families.COLUMNS))
    for column in ("masked = narrow", "a step later", "preset", "Hugging Face"):
        assert found[column] == "same bits" or float(found[column]) < 1e-5, column
    assert not found["GGUF"].startswith("no")


def test_llama_cpp_computes_what_is_exported(tmp_path):
    pytest.importorskip("llama_cpp")
    from benchmarks import served

    found = served.family("llama", ["What is written?"])["float32"]
    assert found["logits differ by"] < 1e-3 and not found["texts of other ids"]
    assert found["greedy tokens"] == found["greedy tokens equal"]
