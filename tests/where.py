"""What `make test` does not run on every backend, and why no fault can hide there.

A row names tests by how their ids begin. With `--once=...` they run on its backends
only, but for those in `everywhere`; without it (`pytest` as it is, `make endurance`)
every test runs on every backend. Torch, which compiles nothing, is the quickest.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """Tests that one or two backends' processes run for all.

    Attributes:
        begins: str, how the ids of the tests begin, after `tests/`.
        why: str, why the other backends cannot differ.
        backends: tuple of str, which run them.
        everywhere: tuple of str, beginnings of ids that run on each all the same.
    """

    begins: str
    why: str
    backends: tuple[str, ...] = ("torch",)
    everywhere: tuple[str, ...] = ()


_NONE = "it touches no backend: files, NumPy and text alone"
_TWO = ("torch", "jax")  # tensorflow traces so slowly: the rest of the file runs there
_PROCESS = "a process is started, and what is tested is over before a model is made"

ROWS = (
    Row("data/", _NONE, everywhere=("data/test_batches.py::TestFit",)),
    Row("report/", _NONE),
    Row("schedules/test_milestones.py", _NONE),
    Row("test_imports.py", _NONE),
    Row("test_files.py", _NONE),
    Row("test_face.py", _NONE),
    Row("test_pages.py::test_no_other", _NONE),
    Row("test_pages.py::test_links", _NONE),
    Row("test_pages.py::test_an_example", "callbacks/ holds the same on each"),
    Row("test_guides.py::test_header", _NONE),
    Row("test_guides.py::test_its_notebook", _NONE),
    Row("test_guides.py::test_what_is_no_guide", _NONE),
    Row("test_guides.py::test_backends_are_named", _NONE),
    Row("test_guides.py::test_many_devices", "meshes are jax's", ("jax",)),
    Row(
        "test_guides.py::test_reading_the_pictures", "the run is test_train's, on each"
    ),
    Row("test_gpu_day.py", "it starts processes of its own, on the backends it names"),
    Row("test_peers.py", _NONE),
    Row("test_doctests.py", "examples of what the other tests hold on each backend"),
    Row("test_malformed.py", "a file is read and refused before a model is made"),
    Row("test_no_code_runs.py", "loading is Keras's and ours in Python"),
    Row(
        "test_command_line.py",
        _PROCESS,
        everywhere=(
            "test_command_line.py::test_nothing_but_what_is_asked_for_is_said[prog",
        ),
    ),
    Row("runs/test_config", _NONE),
    Row("runs/test_evidence.py", _NONE),
    Row(
        "runs/test_precision.py",
        "options of Keras's own, handed on",
        everywhere=(
            "runs/test_precision.py::test_refused_on_tensorflow",
            "runs/test_precision.py::test_the_optimizer_is",
            "runs/test_precision.py::test_the_rate",
            "runs/test_precision.py::test_rematerialized",
        ),
    ),
    Row("runs/test_narrow_width.py", "shapes alone; callbacks/test_budget.py on each"),
    Row(
        "runs/test_precision.py::test_a_step_in_parts",
        "tensorflow refuses it",
        _TWO,
    ),
    Row(
        "runs/test_precision.py::test_mixed_precision[mixed_bfloat16",
        "methods/test_methods.py prunes in half precision on each",
        _TWO,
    ),
    Row(
        "hub/test_rematerialized.py",
        "blocks are wrapped by one function, whatever they are called with",
        everywhere=("hub/test_rematerialized.py::test_pruned_as_without[llama3]",),
    ),
    Row(
        "hub/test_mixtures.py",
        "arrays of three axes are cut and saved as those of two are",
        everywhere=(
            "hub/test_mixtures.py::test_equals_algorithm_1",
            "hub/test_mixtures.py::test_narrow_in_the_middle_of_fit[gpt oss",
            "hub/test_mixtures.py::test_cuts",
        ),
    ),
    Row("runs/test_mesh.py", "meshes are jax's", ("jax",)),
    Row("keras_private/test_mask_torch.py", "it is torch's"),
    Row("distribution/test_layouts.py", "meshes are jax's", ("jax",)),
    Row("distribution/test_share.py", _NONE),
    Row(
        "runs/test_plan.py",
        "numbers of a config; the models are built only",
        everywhere=(
            "runs/test_plan.py::test_stages",
            "runs/test_plan.py::test_a_compiler",
        ),
    ),
    Row("runs/test_tokenizers.py", "tokenizers are text and ids"),
    Row(
        "runs/test_corpora.py",
        "documents become the windows that test_train trains on, on each backend",
    ),
    Row(
        "runs/test_hub_runs.py",
        "the run is test_train's, the model is test_hub_contract's, both on each",
        everywhere=("runs/test_hub_runs.py::TestBytes",),
    ),
    Row(
        "runs/test_hub_models.py",
        "a row of the table a family; the families train in hub/ on each backend",
        everywhere=("runs/test_hub_models.py::test_every_family[llama3]",),
    ),
    Row(
        "runs/test_damaged_runs.py",
        "which checkpoint is taken is read from files; checkpoints/ restores on each",
        everywhere=("runs/test_damaged_runs.py::test_all_checkpoints_damaged",),
    ),
    Row("runs/test_teacher_memory.py", "torch tells what it keeps for a gradient"),
    Row("runs/test_train.py::TestRunFolder", _NONE),
    Row("runs/test_train.py::TestCommandLine", "refused before a model is made"),
    Row(
        "paper/",
        "an experiment about the library: its parts are tested on each backend",
    ),
    Row(
        "paper/test_paper_costs.py::test_the_count_is",
        "jax's compiler counts",
        ("jax",),
    ),
    Row("checkpoints/test_checkpoint_files.py", _NONE),
    Row("checkpoints/test_checkpoint_memory.py", "NumPy's copies are counted"),
    Row(
        "checkpoints/test_checkpoint.py::test_from_every_checkpoint_on",
        "a method's own state is restored as any other array",
        _TWO,
        (
            "checkpoints/test_checkpoint.py::test_from_every_checkpoint_on[sens",
            "checkpoints/test_checkpoint.py::test_from_every_checkpoint_on[learned",
        ),
    ),
    Row(
        "callbacks/test_progressive.py::test_equals_compact_end",
        "where milestones lie is Python's; one row narrows on tensorflow too",
        _TWO,
        ("callbacks/test_progressive.py::test_equals_compact_end[a fraction",),
    ),
    Row(
        "callbacks/test_progressive.py::test_a_converted_kerashub_model",
        "test_hub_contract narrows KerasHub's models in fit on each",
        _TWO,
    ),
    Row(
        "callbacks/test_progressive.py::test_methods_that_decide_once",
        "test_methods runs every method on each",
        _TWO,
    ),
    Row(
        "layers/test_ungated.py",
        "two matrices for three; test_algorithm and test_layers have them on each",
        everywhere=(
            "layers/test_ungated.py::test_methods_narrow_in_fit_as_masked[sens",
        ),
    ),
    Row(
        "callbacks/test_budget.py",
        "a width is worked out from shapes before the run, which test_progressive has",
        everywhere=("callbacks/test_budget.py::test_parameters[500",),
    ),
    Row(
        "callbacks/test_compile_ahead.py",
        "only jax compiles from shapes; tensorflow and torch have nothing to do",
        ("jax",),
        ("callbacks/test_compile_ahead.py::test_a_fit_that_stops",),
    ),
    Row(
        "runs/test_resume.py::test_killed",
        "checkpoints/ restores a run exactly on each; on others in `make endurance`",
        ("jax",),
    ),
    Row(
        "monitor/test_monitor.py",
        "a reading of masks and scores, which test_idea_prune compares on each",
        _TWO,
        (
            "monitor/test_monitor.py::test_every_number",
            "monitor/test_monitor.py::test_loss",
            "monitor/test_monitor.py::test_learning_rate",
            "monitor/test_monitor.py::test_widths",
            "monitor/test_monitor.py::test_churn",
            "monitor/test_monitor.py::test_histograms",
            "monitor/test_monitor.py::test_flops",
            "monitor/test_monitor.py::test_monitoring_changes_nothing",
            "monitor/test_monitor.py::test_several_steps_an_execution",
            "monitor/test_monitor.py::test_alone",
        ),
    ),
    Row("models/test_config.py::test_paper_shapes", "parameters are counted"),
    Row(
        "checkpoints/test_checkpoint.py::test_a_converted_kerashub_model",
        "KerasHub's variables are restored as any other array",
        ("torch", "tensorflow"),
    ),
    Row(
        "callbacks/test_idea_prune.py::test_the_width_is_exact",
        "the width is an integer of Python's, handed to the step",
        everywhere=(
            "callbacks/test_idea_prune.py::test_the_width_is_exact[end-12-7",
            "callbacks/test_idea_prune.py::test_the_width_is_exact[off-31",
        ),
    ),
    Row(
        "methods/test_hub.py::test_every_method",
        "test_methods runs every method on each, test_hub_contract every family",
        everywhere=(
            "methods/test_hub.py::test_every_method_narrows_in_fit_and_compacts_to_stock"
            "[learned",
        ),
    ),
    Row(
        "evaluation/test_harness",
        "log-likelihoods are NumPy on the scorer's, which runs on each backend",
        everywhere=(
            "evaluation/test_harness.py::test_fifty_documents",
            "evaluation/test_harness_equals_hf.py::test_fifty_log_likelihoods[llama3",
        ),
    ),
    Row("evaluation/test_hub_tasks.py", _NONE),
    Row(
        "export/",
        "weights leave as NumPy arrays and are compared where they are loaded",
        everywhere=(
            "export/test_export.py::TestHuggingFace::test_equals_the_pruned_model[llama3",
            "export/test_export.py::TestPreset::test_keeps",
            "export/test_export.py::TestPreset::test_own_decoder",
            "export/test_export.py::TestOnnx",
            "export/test_gguf.py::TestWeights::test_read_by_transformers[llama3",
        ),
    ),
    Row("hub/test_families.py", _NONE),
    Row(
        "hub/test_encoders.py",
        "a row of the table a family; language models are trained on each backend",
        everywhere=("hub/test_encoders.py::test_pruned_in_fit[bert]",),
    ),
    Row(
        "hub/test_hub_contract.py::test_untrained",
        "a conversion moves attributes; four families are trained on each",
    ),
    Row(
        "hub/test_hub_contract.py::test_up_is",
        "which attribute is which, by family",
    ),
    Row("hub/test_hub_contract.py::test_a_narrow_preset_loads", _PROCESS),
    Row(
        "hub/test_hub_states.py",
        "layers/test_idle.py and callbacks/test_beside_the_path.py, on each, have the "
        "same ways with this package's own layers",
        _TWO,
        (
            "hub/test_hub_states.py::test_idle_it_is_trained_as_the_stock_model[two",
            "hub/test_hub_states.py::test_called_twice",
            "hub/test_hub_states.py::test_another_task",
        ),
    ),
    Row("hub/test_hub_refusals.py", "attributes of a model are read, nothing is run"),
    Row("hub/test_presets.py", "the contract's presets, with tokenizers: text and ids"),
    Row(
        "hub/test_hub_conformance.py",
        "KerasHub's own checks of a model, which know no backend",
    ),
)


def backends_of(nodeid: str) -> tuple[str, ...]:
    """The backends that run a test under `--once`; empty: each does."""
    name = nodeid.removeprefix("tests/")
    rows = [row for row in ROWS if name.startswith(row.begins)]
    if not rows or any(name.startswith(row.everywhere) for row in rows):
        return ()
    return max(rows, key=lambda row: len(row.begins)).backends


def runs(nodeid: str, backend: str, part: str) -> bool:
    """Whether a backend's process runs a test.

    Args:
        nodeid: str, the test's id.
        backend: str, the process's.
        part: "alone", what no other backend runs; "shared", the rest of what this one
            runs; "both".
    """
    backends = backends_of(nodeid)
    part_of_it = "alone" if backends == (backend,) else "shared"
    return (not backends or backend in backends) and part in ("both", part_of_it)


def unused(nodeids) -> list[str]:
    """Beginnings in the table that no test has: what was renamed runs everywhere."""
    names = [nodeid.removeprefix("tests/") for nodeid in nodeids]
    beginnings = [b for row in ROWS for b in (row.begins, *row.everywhere)]
    return [b for b in beginnings if not any(name.startswith(b) for name in names)]
