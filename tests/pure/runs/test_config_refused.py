"""Run files that are refused at once, each with the sentence that says why."""

import pytest

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import parse_config

# What is wrong: the TOML, and what the message must say.
REFUSED = {
    "no TOML": ("[model", "not valid TOML"),
    "unknown table": ("[modle]", r"Unknown table: 'modle'. Did you mean 'model'\?"),
    "unknown key": (
        "[model]\nhiden_dim = 64",
        r"Unknown key in \[model\]: 'hiden_dim'. Did you mean 'hidden_dim'\? Valid: "
        "hub, preset, tokenizer",
    ),
    "key far from any": ("[run]\nzzz = 1", "Unknown key in .run.: 'zzz'. Valid: out"),
    "key of another table": (
        "[model]\nbatch_size = 8",
        r"Unknown key in \[model\]: 'batch_size'. Move it under \[data\]",
    ),
    "key outside the tables": (
        "hidden_dim = 64",
        r"Unknown table: 'hidden_dim'. Move it under \[model\]",
    ),
    "value for a table": ("model = 3", r"`model` must be a table. .*Write \[model\]"),
    "text for a number": (
        "[model]\nnum_layers = '2'",
        "`model.num_layers` must be an integer >= 1. Received: .*'2'",
    ),
    "fraction for a count": (
        "[data]\nbatch_size = 2.5",
        "`data.batch_size` must be an integer >= 1. Received: .*2.5",
    ),
    "bool for a count": (
        "[budget]\nprune_steps = true",
        "`budget.prune_steps` must be an integer >= 1. Received: .*True",
    ),
    "no layer": ("[model]\nnum_layers = 0", "num_layers` must be an integer >= 1"),
    "number for text": ("[data]\ntext = 3", "`data.text` must be a non-empty string"),
    "empty text": ("[run]\noutput = ' '", "`run.output` must be a non-empty string"),
    "number for a bool": (
        "[run]\ncompare_from_scratch = 1",
        "`run.compare_from_scratch` must be true or false. Received: .*=1",
    ),
    "fraction of zero": (
        "[model]\ntarget_dim = 0.0",
        r"`model.target_dim` must be a whole number .* in \(0, 1\).*Received: .*=0.0",
    ),
    "target wider": (
        "[model]\nhidden_dim = 64\ntarget_dim = 65",
        "`model.target_dim` must be below model.hidden_dim=64.*target_dim=65. Lower",
    ),
    "nothing to prune": (
        "[model]\nhidden_dim = 64\ntarget_dim = 64",
        "`model.target_dim` must be below model.hidden_dim=64",
    ),
    "heads do not divide": (
        "[model]\nmodel_dim = 62",
        "`model.model_dim` must be a multiple of 2 × model.num_heads.*Received: "
        r"model_dim=62, num_heads=4 \(default\). Set `model_dim` to 64.$",
    ),
    "odd head": ("[model]\nmodel_dim = 12", "must be a multiple of 2 × model.num_hea"),
    "key-value heads": (
        "[model]\nnum_key_value_heads = 3",
        r"must divide model.num_heads=4 \(default\). Received: num_key_value_heads=3. "
        r"Set `num_key_value_heads` to one of \[1, 2, 4\]",
    ),
    "unknown family": (
        "[model]\nhub = 'gpt5'",
        "`model.hub` must be one of 'llama', 'llama3', .* Received: model.hub='gpt5'.$",
    ),
    "hub and preset": (
        "[model]\nhub = 'llama'\npreset = 'mine'",
        "`model.hub` cannot be given together with model.preset='mine', which decides "
        "it. Received: hub='llama'. Delete `hub`, or `preset`",
    ),
    "preset and dimensions": (
        "[model]\npreset = 'mine'\nhidden_dim = 512",
        "`model.hidden_dim` cannot be given together with model.preset='mine'",
    ),
    "preset and grouped heads": (
        "[model]\npreset = 'mine'\nnum_key_value_heads = 2",
        "`model.num_key_value_heads` cannot be given together with model.preset",
    ),
    "empty preset": ("[model]\npreset = ''", "`model.preset` must be a non-empty str"),
    "unknown tokenizer": (
        "[model]\nhub = 'llama'\ntokenizer = 'words'",
        "`model.tokenizer` must be one of 'bytes', 'bpe', 'sentencepiece', 'preset'",
    ),
    "tokenizer of another family": (
        "[model]\nhub = 'llama3'\ntokenizer = 'sentencepiece'",
        "`model.tokenizer` must be 'bytes' or 'bpe' for 'llama3': KerasHub's "
        "Llama3Tokenizer reads no other. Received: .*='sentencepiece'. Set .* to 'bpe'",
    ),
    "SentencePiece family": (
        "[model]\nhub = 'gemma'\ntokenizer = 'bpe'",
        "`model.tokenizer` must be 'bytes' or 'sentencepiece' for 'gemma'",
    ),
    "tokenizer without a hub model": (
        "[model]\ntokenizer = 'bpe'",
        "`model.tokenizer` does not fit: this package's own decoder reads bytes. "
        "Received: tokenizer='bpe'. Set `model.hub`",
    ),
    "vocabulary without a hub model": (
        "[model]\nvocabulary_size = 300",
        "own decoder reads bytes. Received: tokenizer='bytes', vocabulary_size=300",
    ),
    "tokenizer of no preset": (
        "[model]\nhub = 'llama3'\ntokenizer = 'preset'",
        "`model.tokenizer` does not fit: there is no preset.*Set `model.preset`, or",
    ),
    "another tokenizer for a preset": (
        "[model]\npreset = 'mine'\ntokenizer = 'bytes'",
        "`model.tokenizer` does not fit: a preset has its own tokenizer",
    ),
    "vocabulary for a preset": (
        "[model]\npreset = 'mine'\nvocabulary_size = 300",
        "a preset has its own tokenizer.*vocabulary_size=300. Delete them",
    ),
    "vocabulary of bytes": (
        "[model]\nhub = 'llama3'\nvocabulary_size = 300",
        "`vocabulary_size` is for a trained tokenizer; the byte-level one of 'llama3' "
        "has 261 tokens. Received: vocabulary_size=300. Delete it, or .* to 'bpe'",
    ),
    "vocabulary too small": (
        "[model]\nhub = 'qwen3'\ntokenizer = 'bpe'\nvocabulary_size = 258",
        "`vocabulary_size` must be above 258 for 'qwen3', .*Received: .*=258. Set a",
    ),
    "vocabulary of none": (
        "[model]\nhub = 'qwen'\ntokenizer = 'bpe'\nvocabulary_size = 0",
        "`model.vocabulary_size` must be an integer >= 1. Received: .*=0",
    ),
    "two corpora": (
        "[corpus]\npaths = 'a'\ndataset = 'b'",
        r"cannot both be given. Received: paths=\['a'\], dataset='b'. Delete one",
    ),
    "paths of no kind": (
        "[corpus]\npaths = 3",
        "`corpus.paths` must be a path or a list of paths. Received: .*=3",
    ),
    "chat template of no name": (
        "[chat]\npaths = 'a'\ntemplate = 'lama3'",
        "`chat.template` must be one of 'llama3', .*Received: .*'lama3'. Did you mean",
    ),
    "chat template without a response": (
        "[chat]\npaths = 'a'\ntemplate = { user = '{content}' }",
        "a table of .*`user` and `assistant` are needed. Received: the keys user",
    ),
    "chat template without a place": (
        "[chat]\npaths = 'a'\ntemplate = { user = 'Q:', assistant = '{content}' }",
        "`user` of a chat template must hold {content} once. Received: user='Q:'. Put",
    ),
    "tokens of a chat template": (
        "[chat]\npaths = 'a'\n"
        "template = { user = '{content}', assistant = '{content}', tokens = [1] }",
        r"`chat.template.tokens` must be a list of strings. Received: tokens=\[1\]",
    ),
    "one token of a chat template": (
        "[chat]\npaths = 'a'\n"
        "template = { user = '{content}', assistant = '{content}', tokens = '</s>' }",
        "`chat.template.tokens` must be a list of strings. Received: tokens='</s>'",
    ),
    "chat template without conversations": (
        "[chat]\ntemplate = 'gemma'",
        r"\[chat\] needs `paths`.*Received: template='gemma'. Set `chat.paths`, or",
    ),
    "no paths": ("[corpus]\npaths = []", r"must be a path or a list of .*paths=\[\]"),
    "an empty path": (
        "[corpus]\npaths = ['a', '']",
        "`corpus.paths` must be a non-empty string",
    ),
    "part of no data set": (
        "[corpus]\npaths = 'a'\ndataset_split = 'validation'",
        "`corpus.dataset_split` belongs to corpus.dataset, which is.*'validation'",
    ),
    "pattern of no files": (
        "[corpus]\ndataset = 'a'\npattern = '*.py'",
        r"`corpus.pattern` belongs to corpus.paths, which is.*'\*.py'. Set `cor",
    ),
    "held out of nothing": (
        "[corpus]\nvalidation_paths = ['a']",
        r"\[corpus\] needs `paths` or `dataset`.*Set one of them, or delete the table",
    ),
    "unknown policy": (
        "[corpus]\npaths = 'a'\non_bad = 'ignore'",
        "`corpus.on_bad` must be one of 'refuse', 'skip'. Received: .*'ignore'",
    ),
    "all text held out": (
        "[data]\nvalidation_fraction = 1.0",
        r"`data.validation_fraction` must be a number in \[0.001, 0.5\]",
    ),
    "rate not a number": (
        "[optimizer]\npeak_learning_rate = nan",
        "`optimizer.peak_learning_rate` must be a number in .*Received: .*nan",
    ),
    "rate rises": (
        "[optimizer]\npeak_learning_rate = 0.001\nend_learning_rate = 0.01",
        "`optimizer.end_learning_rate` must be at most .*=0.001. Received: .*=0.01",
    ),
    "decay of one": (
        "[pruning]\nema_decay = 1.0",
        r"`pruning.ema_decay` must be a number in \[0.0, 1.0\). Received: .*1.0",
    ),
    "unknown reduction": (
        "[pruning]\nrow_reduce = 'sum'",
        "`pruning.row_reduce` must be one of 'mean', 'max'. Received: .*'sum'",
    ),
    "unknown method": (
        "[pruning]\nmethod = 'magic'",
        "`pruning.method` must be one of 'sensitivity'.*Received: .*'magic'.$",
    ),
    "misspelled method": (
        "[pruning]\nmethod = 'sensitvity'",
        r"Received: pruning.method='sensitvity'. Did you mean 'sensitivity'\?",
    ),
    "unknown compaction": (
        "[pruning]\ncompact = 'now'",
        "`pruning.compact` must be one of 'end', 'progressive', 'off'. Rec.*'now'",
    ),
    "mask never changes": (
        "[pruning]\nupdate_every = 0",
        "`pruning.update_every` must be an integer >= 1",
    ),
    "a refit of neurons that are pruned one by one": (
        "[pruning]\nrefit_windows = 64",
        "`pruning.refit_windows` fits layers when all neurons go at once.*Received: "
        "method='sensitivity'.*, refit_windows=64",
    ),
    "weights that weigh no activations": (
        "[pruning]\nby_weights = true",
        "`pruning.by_weights` weighs the activations.*Received: method='sensitivity'.*"
        "by_weights=True",
    ),
    "misspelled axis": (
        "[distribution]\nmesh = { dta = 2 }",
        r"Received: distribution.mesh=\{'dta': 2\}. Did you mean 'data'\?",
    ),
    "misspelled dtype": ("[run]\ndtype = 'mixed_bf16'", "mean 'mixed_bfloat16'"),
    "no checkpoints": (
        "[run]\nkeep_checkpoints = 0",
        "`run.keep_checkpoints` must be an integer >= 1",
    ),
    "negative seed": ("[run]\nseed = -1", "`run.seed` must be an integer >= 0"),
}


@pytest.mark.parametrize("text, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_once(text, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(text)
