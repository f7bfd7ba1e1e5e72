"""The harness adapter against lm-evaluation-harness's own model `hf`.

The same weights twice: ours in Keras, and as a folder that transformers loads. Once
the folder is our export, once it is a stock checkpoint that KerasHub converts.
"""

import dataclasses
import json
import re

import lm_eval
import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import keras_idea as ki
from keras_idea.evaluation import perplexity
from keras_idea.export import export_hf, export_preset
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.lm.cli import main
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from keras_idea.lm.evaluation.local_tasks import FILES, local_tasks
from keras_idea.lm.runs.judge.evaluate import harness_model
from keras_idea.lm.runs.judge.judged import load_judged
from tests.support.hub_models import tiny_lm
from tests.support.masks import prune_by_hand

TEXT = (
    "def f(x):\n    while x > 10:\n        x = x - 2024\n\n    return x\n"
    "the quick brown fox jumps over the lazy dog, and 'again'\n"
) * 4
# One bucket of the scorer: one program to compile.
VOCABULARY, LENGTH = 320, 32
TOLERANCE = 3e-4


@dataclasses.dataclass
class Pair:
    """One model twice: `ours` and `theirs`, and the preset that ours comes from."""

    ours: object
    theirs: HFLM
    preset: str
    begins: bool


def exported(family, kind, folder):
    """A pruned model, exported both ways; the folders of preset and Hugging Face."""
    import keras_hub

    untied = {"tie_word_embeddings": False} if family == "qwen" else {}
    lm = tiny_lm(family, num_layers=1, vocabulary_size=VOCABULARY, **untied)
    prefix = HUB_FAMILIES[family].prefix
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    tokenizer = make_tokenizer(family, kind, TEXT, VOCABULARY)
    lm.preprocessor = preprocessor(tokenizer, sequence_length=LENGTH)
    decode = lm.preprocessor.tokenizer.detokenize
    head = lm.backbone.token_embedding.reverse_embeddings
    head.assign(without_broken_characters(np.array(head), decode))
    rng = np.random.default_rng(0)
    for ffn in ki.find_ffns(lm):
        prune_by_hand(ffn, rng.permutation(ffn.hidden_dim) < 10)
    narrow = ki.compact(lm)
    export_preset(narrow, folder / "preset")
    export_hf(narrow, folder / "hf")
    return folder / "preset", folder / "hf"


def without_broken_characters(head, decode):
    """A head that never says half a character, which every decoder shows in its way."""
    for i in range(VOCABULARY):
        if "\ufffd" in str(decode([i])):
            head[:, i] = 0.0
    return head


def converted(folder):
    """A checkpoint made by transformers, and the preset that KerasHub makes of it."""
    import keras_hub
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing

    special = list(HUB_FAMILIES["llama3"].from_nothing.special_tokens)
    start, end = special[:2]
    tokenizer = Tokenizer(models.BPE())
    # Not cut into words first: KerasHub 0.32 takes the pattern for that literally.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A",
        pair=f"{start} $A {start} $B",
        special_tokens=[(start, tokenizer.token_to_id(start))],
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end
    ).save_pretrained(folder / "hf")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.4,
        bos_token_id=tokenizer.token_to_id(start),
        eos_token_id=tokenizer.token_to_id(end),
    )
    model = transformers.LlamaForCausalLM(config)
    head = model.lm_head.weight.data.numpy().T
    without_broken_characters(head, tokenizer.decode)
    model.save_pretrained(folder / "hf")
    lm = keras_hub.models.CausalLM.from_preset(str(folder / "hf"), dtype="float32")
    lm.save_to_preset(str(folder / "preset"))
    return folder / "preset", folder / "hf"


MODELS = {
    "llama3, BPE": lambda folder: exported("llama3", "bpe", folder),
    "llama, SentencePiece": lambda folder: exported("llama", "sentencepiece", folder),
    "qwen, no start token": lambda folder: exported("qwen", "bpe", folder),
    "converted by KerasHub": converted,
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    preset, hf = MODELS[request.param](tmp_path_factory.mktemp("models"))
    apart = hf / "tokenizer"
    theirs = HFLM(
        pretrained=str(hf),
        tokenizer=str(apart if apart.is_dir() else hf),
        device="cpu",
        dtype="float32",
        max_length=LENGTH,
        batch_size=8,
        # It takes a window of one text for that of another with the same tokens, though
        # another number of them is asked for: lm-eval 0.4 in `loglikelihood_rolling`.
        logits_cache=False,
    )
    judged = load_judged(preset, length=LENGTH, batch_tokens=512)
    begins = not request.param.startswith("qwen")
    return Pair(harness_model(judged), theirs, str(preset), begins)


def pieces(rng, least, most):
    """A random piece of the text, with a few characters that it does not know."""
    start = rng.integers(0, len(TEXT) // 2)
    piece = TEXT[start : start + rng.integers(least, most)]
    return piece if rng.random() < 0.8 else piece + " ü漢🙂"


def fifty_pairs():
    """Context and continuation; short, cut off, empty, parted within a word."""
    rng = np.random.default_rng(0)
    found = [(pieces(rng, 1, 90), pieces(rng, 1, 25)) for _ in range(44)]
    return [
        *found,
        ("", "the quick"),
        ("", " a"),
        ("the quick ", "brown"),
        ("the qui", "ck brown fox"),
        ("Question: 12345?\nAnswer:", " 678"),
        ("a  \n", "x"),
    ]


def ask(pair, kind, arguments):
    """What ours answers, and what theirs does."""
    requests = [Instance(kind, {}, a, i) for i, a in enumerate(arguments)]
    return [
        getattr(model, kind)(requests, disable_tqdm=True)
        for model in (pair.ours, pair.theirs)
    ]


def test_tokens(pair):
    texts = [text for both in fifty_pairs() for text in both]
    for text in texts:
        assert pair.ours.tok_encode(text) == pair.theirs.tok_encode(text)
    start = pair.theirs.prefix_token_id
    assert (pair.ours.tok_encode("the")[0] == start) == pair.begins
    assert pair.ours.prefix_token_id == start
    assert pair.ours.eot_token_id == pair.theirs.eot_token_id


def test_fifty_log_likelihoods(pair):
    arguments = fifty_pairs()
    lengths = [len(pair.ours.tok_encode(a + b)) for a, b in arguments]
    assert min(lengths) < 10 and max(lengths) > LENGTH + 1  # some are cut off
    ours, theirs = ask(pair, "loglikelihood", arguments)
    expected = np.array([value for value, _ in theirs])
    assert np.ptp(expected) > 10
    np.testing.assert_allclose([value for value, _ in ours], expected, atol=TOLERANCE)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]


def test_rolling_log_likelihoods(pair):
    rng = np.random.default_rng(1)
    arguments = [(pieces(rng, 1, 250),) for _ in range(6)] + [("",), (TEXT[:400],)]
    ours, theirs = ask(pair, "loglikelihood_rolling", arguments)
    assert min(theirs) < -500
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def nats_of_windows(model, ids, length, stride):
    """-log p of every token but the first, by a loop over windows in plain torch.

    A window is `length` tokens that are read, and as many that are predicted: those
    after each. The next one begins `stride` tokens later; it counts what is new.
    """
    nats, done, end = [], 0, min(length, len(ids) - 1)
    while done < len(ids) - 1:
        window = torch.tensor(ids[max(0, end - length) : end + 1])
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0].double()
        every = torch.nn.functional.cross_entropy(logits, window[1:], reduction="none")
        nats += every[-(end - done) :].tolist()
        done, end = end, min(end + stride, len(ids) - 1)
    return nats


@pytest.mark.parametrize("stride", [None, 7, LENGTH])
def test_perplexity_per_token(pair, tmp_path, capsys, stride):
    """In Python and on the command line, on the same windows."""
    (tmp_path / "text.txt").write_text(TEXT)
    ids = pair.theirs.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert len(ids) > 4 * LENGTH
    nats = nats_of_windows(pair.theirs.model, ids, LENGTH, stride or LENGTH // 2)
    assert len(nats) == len(ids) - 1
    size = len(TEXT) - len(pair.theirs.tokenizer.decode(ids[:1]))
    expected, bits = np.exp(np.mean(nats)), np.sum(nats) / size / np.log(2)
    judged = load_judged(pair.preset, length=LENGTH, batch_tokens=512)
    found = perplexity(judged.scorer, np.array(ids), stride=stride)
    assert found.per_token == pytest.approx(expected, rel=1e-5)
    assert (found.window, found.stride) == (LENGTH, stride or LENGTH // 2)
    command = ["evaluate", pair.preset, "--text", str(tmp_path / "text.txt")]
    command += ["--length", str(LENGTH)]
    capsys.readouterr()
    assert main([*command, *([] if stride is None else ["--stride", f"{stride}"])]) == 0
    printed = capsys.readouterr().out
    told = dict(re.findall(r"(per token|per byte|window|stride) +([\d.]+)", printed))
    assert float(told["per token"]) == pytest.approx(expected, rel=1e-5)
    assert float(told["per byte"]) == pytest.approx(bits, rel=1e-4)
    assert told["window"] == f"{LENGTH}"
    assert told["stride"] == f"{stride or LENGTH // 2}"


def test_generated_text(pair):
    """With stop texts, cut prompts, and the special tokens that a random model says."""
    greedy = {"do_sample": False}
    arguments = [
        ("the quick brown", {**greedy, "until": ["\n"], "max_gen_toks": 12}),
        (TEXT[:300], {**greedy, "until": ["e", "zz"], "max_gen_toks": 16}),
        ("def f", {**greedy, "until": [], "max_gen_toks": 25}),
        ("x", {**greedy, "until": "qu", "max_new_tokens": 20, "temperature": 0.0}),
    ]
    ours, theirs = ask(pair, "generate_until", arguments)
    assert max(map(len, theirs)) > 10
    assert ours == theirs


def test_sampling_is_refused(pair):
    with pytest.raises(ValueError, match="generated greedily .* temperature=0.7"):
        ask(pair, "generate_until", [("a", {"until": [], "temperature": 0.7})])


QUESTIONS = [
    {
        "query": f"the {word} of line {i}",
        "choices": [" fox", " lazy dog", " again", " 2024"],
        "gold": i % 4,
    }
    for i, word in enumerate(["quick", "brown", "lazy", "return", "x > 10", "def"])
]


def test_a_task_on_the_command_line(pair, tmp_path, capsys):
    """What the command prints is what the harness finds with its own model."""
    lines = "".join(json.dumps(question) + "\n" for question in QUESTIONS)
    (tmp_path / FILES["arc_challenge"]).write_text(lines)
    found = lm_eval.simple_evaluate(
        pair.theirs,
        tasks=local_tasks(["arc_challenge"], tmp_path),
        bootstrap_iters=1000,
        task_manager=TaskManager(include_defaults=False),
    )["results"]["arc_challenge"]
    command = ["evaluate", pair.preset, "--length", str(LENGTH)]
    command += ["--tasks", "arc_challenge", "--local", str(tmp_path)]
    capsys.readouterr()
    assert main(command) == 0
    printed = capsys.readouterr().out.split()
    for metric in ("acc", "acc_norm"):
        value = printed[printed.index(metric) + 1]
        assert value == f"{found[f'{metric},none']:.4f}"
