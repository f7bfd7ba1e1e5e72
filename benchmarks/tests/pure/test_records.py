"""What is written from records, and what a record names."""

import platform

from benchmarks.checkpoints import table
from benchmarks.record import RESULTS, cpu_name


def test_the_table_of_released_checkpoints_is_that_of_its_cells(tmp_path):
    table.write(RESULTS / "checkpoints", tmp_path)
    written = (tmp_path / "checkpoints.md").read_text("utf-8")
    assert written == (RESULTS / "checkpoints.md").read_text("utf-8")


def test_the_family_and_model_of_a_processor_are_named(tmp_path):
    """Its name alone may stand for several generations, whose bits differ."""
    file = tmp_path / "cpuinfo"
    one = "vendor_id\t: AMD\ncpu family\t: 25\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n"
    names = []
    for model in (1, 17):
        file.write_text(2 * one.format(model))
        names.append(cpu_name(file))
    assert names == [f"AMD EPYC (cpu family 25, model {m})" for m in (1, 17)]
    name = platform.processor() or platform.machine()
    assert cpu_name(tmp_path / "none") == name
