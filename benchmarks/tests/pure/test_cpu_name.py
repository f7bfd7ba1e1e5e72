"""A record names the processor, and its generation where its name does not."""

import platform

from benchmarks.record import cpu_name


def test_the_family_and_model_are_named(tmp_path):
    file = tmp_path / "cpuinfo"
    one = "vendor_id\t: AMD\ncpu family\t: 25\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n"
    names = []
    for model in (1, 17):
        file.write_text(2 * one.format(model))
        names.append(cpu_name(file))
    assert names == [f"AMD EPYC (cpu family 25, model {m})" for m in (1, 17)]


def test_where_there_is_no_such_file(tmp_path):
    name = platform.processor() or platform.machine()
    assert cpu_name(tmp_path / "none") == name
