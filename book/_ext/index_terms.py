"""Words that readers search for where a chapter uses others: Sphinx's index directive cannot stand in a notebook."""

from docutils import nodes
from sphinx import addnodes

# By the heading of the section that teaches it; book/search.js has what chapters say themselves.
TERMS = {
    "From patches to tokens": "patch embedding, patch projection, tokenization",
    "The class token": "cls token, cls",
    "A vector for every place": "position embedding, positional embedding, positional encoding",
    "A clock for every place": "sinusoidal positions, frequency",
    "A soft look-up": "query, key, value",
    "Three tokens and a pencil": "softmax, self-attention, scaled dot-product attention",
    "Why divide by √head_dim?": "scale, temperature of attention",
    "One look isn’t enough": "multi-head attention, multi-head self-attention",
    "The same in one kernel": "flash attention, memory-efficient attention",
    "Two lines": "residual connection, skip connection, transformer block",
    "LayerNorm, by hand": "layer normalization",
    "The MLP: each token by itself": "feed-forward",
    "Twenty lines": "vit, vitconfig",
    "How the weights start": "initialization, init",
    "Class token or mean?": "global average pooling",
    "Three piles of images": "test set, validation set, train test split",
    "What’s in a step?": "adam, adamw, momentum, bias correction",
    "When the curve looks sick": "loss curve, diverging loss",
    "Exercise 6.2: Accuracy, class by class": "class imbalance, unbalanced classes, balanced accuracy",
    "How large a step, and when?": "warm-up, learning rate schedule",
    "Who decays?": "parameter groups",
    "New images out of old ones": "data augmentation",
    "How high a learning rate?": "learning rate",
    "Does it know when it’s wrong?": "confidence, expected calibration error",
    "An average of the weights": "exponential moving average",
    "Exercise 7.6: Unequal shards": "ddp, multi-gpu, distributed training",
    "How far does a head look?": "mean attention distance",
    "Do the maps tell the truth?": "faithfulness, saliency",
    "One model, three dialects": "timm, torchvision, hugging face",
    "What a few labels are worth": "transfer learning, fine-tuning, LoRA, parameter-efficient tuning",
    "Labels of your own": "csv, class imbalance, unbalanced classes, oversampling",
    "Will it fit?": "mixed precision, memory",
    "How sure is a difference?": "confidence interval, significance, error bars, seeds",
    "Thirty changes, three data sets": "ablation, sweep",
    "A ResNet beside it": "cnn, convolution",
    "How fast could it be?": "utilization, mfu",
    "What memory allows": "roofline, arithmetic intensity, memory bandwidth",
    "The model’s ladder": "bf16",
    "The checklist": "debugging",
}


def add_terms(app, doctree):
    for section in doctree.findall(nodes.section):
        for term in filter(None, TERMS.get(section[0].astext(), "").split(", ")):
            section.insert(1, addnodes.index(entries=[("single", term, section["ids"][0], "main", None)]))


def setup(app):
    app.connect("doctree-read", add_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
