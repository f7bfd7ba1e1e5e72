"""The tables of served.py."""

NOTES = (
    "In a cell: the largest difference between logits, of the largest logit; by how "
    "many nats the mean log-likelihood of a token is off; how many greedy tokens are "
    "the model's, up to the first of a text that is not. Compared with KerasHub in "
    "float32, whose logits and greedy tokens transformers was found to give, too, "
    "where there is a Hugging Face folder. 4 texts of 40 random tokens, 8 of them as a "
    "prompt of 32 more. Random weights take two tokens for about as likely far oftener "
    "than trained ones do. In a mixture rounded weights choose other experts where two "
    "are about as likely, and what follows differs. Tokenizers are trained on a source "
    "file; their ids are compared with KerasHub's on the texts of llama.cpp's own "
    "tests, and a few more. The converter runs on the Hugging Face folder, its tensors "
    "are compared with our float32 file's."
)
RELEASED_NOTES = (
    "Texts of llama.cpp's own tests whose ids are those that it expects there; the "
    "vocabularies lie beside them. KerasHub 0.32 cuts no words. The converter is as it "
    "is: it knows these tokenizers by what they make of a text."
)


def of_families(families, dtypes, texts):
    rows = []
    for name, found in families.items():
        cells = [cell(found[dtype]) for dtype in dtypes]
        ids = found["float32"].get("texts of equal ids")
        words = "none" if ids is None else f"{ids} of {texts}"
        rows.append([name, words, *cells, converter_cell(found.get("converter"))])
    return {
        "title": "Tiny models of random weights, loaded by llama.cpp",
        "columns": ["family", "texts of equal ids", *dtypes, "llama.cpp's converter"],
        "rows": rows,
        "notes": NOTES,
    }


def cell(found):
    for word in ("refused", "failed"):
        if word in found:
            return f"{word}: {found[word]}"
    return (
        f"{found['logits differ by']:.1e} of {found['largest logit']:.1f}; "
        f"{found['log-likelihood of a token differs by']:.1e}; "
        f"{found['greedy tokens equal']} of {found['greedy tokens']}"
    )


def converter_cell(found):
    if found is None:
        return ""
    if "no Hugging Face folder" in found:
        return f"not run: {found['no Hugging Face folder'].split('; it has')[0]}"
    if "refused" in found:
        return f"refused: {found['refused']}"
    own = "; it refuses the tokenizer, so it was made to take it"
    words = own if found["tokenizer not recognized"] else ""
    return f"{found['tensors equal']} of {found['tensors']} tensors equal{words}"


def of_released(released):
    ways = ("KerasHub", "our file", "Hugging Face folder", "converted folder")
    return {
        "title": "Released tokenizers: texts whose ids are llama.cpp's own",
        "columns": ["tokenizer", "texts", *ways, "tensors equal, converted"],
        "rows": [
            [
                name,
                str(found["texts"]),
                *(str(found.get(way, "none")) for way in ways),
                f"{found['tensors equal']} of {found['tensors']}"
                if "tensors" in found
                else found.get("refused", "none"),
            ]
            for name, found in released.items()
        ],
        "notes": RELEASED_NOTES,
    }
