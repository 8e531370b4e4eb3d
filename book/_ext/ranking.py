"""Search finds the section that teaches a term, and then the pages that say most about it.

To Sphinx's index this adds :data:`TERMS`, and it sorts each word's pages by how often they use it: ``book/search.js``
makes scores of that.
"""

import re
from collections import Counter
from pathlib import Path

from sphinx.search import js_index
from sphinx.search.en import SearchEnglish

# What readers search for, by the heading of the section that teaches it. A heading that is gone fails the build.
TERMS = {
    "From patches to tokens": "patch embedding, patch projection, tokenization",
    "Split, permute, merge": "permute, reshape, patches",
    "The class token": "class token, cls token, cls",
    "A vector for every place": "positions, position embedding, positional embedding, positional encoding",
    "A clock for every place": "sincos, sinusoidal positions, sine, frequency",
    "Exercise 2.7: Stretch a table": "interpolation, interpolate, resolution",
    "A soft look-up": "query, key, value, attention",
    "Three tokens and a pencil": "softmax",
    "Why divide by √head_dim?": "scaled dot-product attention, scale, square root, temperature of attention",
    "One look isn’t enough": "head, heads, attention head, multi-head attention, multi-head self-attention",
    "The same in one kernel": "flash attention, fused attention, fused kernel, memory-efficient attention",
    "Two lines": "encoder block, transformer block, residual, residual connection, skip connection",
    "Why a stream?": "residual stream",
    "LayerNorm, by hand": "layernorm, layer norm, layer normalization",
    "The MLP: each token by itself": "mlp, feed-forward, gelu",
    "Pre-norm against post-norm": "pre-norm, post-norm",
    "DropPath": "drop path, stochastic depth",
    "Twenty lines": "vit, vitconfig, the whole model",
    "Logits, not probabilities": "logits, cross-entropy",
    "How the weights start": "initialization, init",
    "Class token or mean?": "pooling, mean pooling, global average pooling",
    "Three piles of images": "test set, validation set, validation, train test split",
    "How large a step, and when?": "learning rate schedule, schedule, warm-up, warmup, cosine schedule",
    "Who decays?": "weight decay, adamw",
    "New images out of old ones": "data augmentation, augmentation, random crop",
    "A softer truth": "label smoothing, mixup, distillation, knowledge distillation, soft labels",
    "Interrupt and resume": "checkpoint, resume",
    "How high a learning rate?": "learning rate",
    "Does it know when it’s wrong?": "calibration, expected calibration error, confidence, temperature",
    "An average of the weights": "ema, exponential moving average",
    "Photographs that are hard to memorize": "cutmix",
    "Exercise 7.6: Unequal shards": "ddp, distributed training, multi-gpu, torchrun",
    "Through all layers: rollout": "rollout, attention rollout",
    "How far does a head look?": "attention distance, mean attention distance",
    "Does it look at the object?": "pointing game",
    "Do the maps tell the truth?": "deletion curve, faithfulness, saliency",
    "One model, three dialects": "timm, hugging face, torchvision, convert weights",
    "What a few labels are worth": "linear probe, fine-tuning, transfer learning",
    "Will it fit?": "gradient checkpointing, activation checkpointing, mixed precision, memory",
    "How sure is a difference?": "confidence interval, interval, significance, error bars, seeds",
    "Thirty changes, three data sets": "ablation, sweep",
    "A ResNet beside it": "resnet, cnn, convolution",
    "How fast could it be?": "flops, utilization, mfu",
    "The model’s ladder": "torch.compile, bf16",
    "The checklist": "debugging, checklist",
}


def add_terms(index: dict, terms: dict[str, str]) -> None:
    """Make each term an entry of the index that leads to its section.

    Raises:
        ValueError: if a heading does not stand exactly once in the book.
    """
    for heading, names in terms.items():
        places = index["alltitles"].get(heading, [])
        if len(places) != 1:
            raise ValueError(f"{len(places)} sections are called {heading!r}: book/_ext/ranking.py wants one")
        (page, section), *_ = places
        for name in names.split(", "):
            index["indexentries"][name] = [[page, section, True]]


def uses(html: str, stem) -> Counter[str]:
    """How often a page's article has each word, in the index's form."""
    article = re.search(r"<article\b.*</article>", html, re.DOTALL)
    text = re.sub(r"<[^>]+>", "", article[0] if article else "")
    return Counter(stem(word) for word in re.findall(r"\w+", text.lower()))


def order(index: dict, counts: dict[str, Counter[str]]) -> None:
    """Sort the pages of each word, most uses first; ``counts`` is by the page's name."""
    pages = [counts[name] for name in index["docnames"]]
    for words in (index["terms"], index["titleterms"]):
        for word, found in words.items():
            if isinstance(found, list):
                found.sort(key=lambda page, word=word: -pages[page][word])


def order_index(app, exception):
    path = Path(app.outdir) / "searchindex.js"
    if exception or app.builder.format != "html" or not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        index = js_index.load(file)
    add_terms(index, TERMS)
    stem = SearchEnglish({}).stem
    order(index, {
        name: uses((path.parent / f"{name}.html").read_text(encoding="utf-8"), stem) for name in index["docnames"]
    })  # fmt: skip
    with path.open("w", encoding="utf-8") as file:
        js_index.dump(index, file)


def setup(app):
    app.connect("build-finished", order_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
