"""The Vision Transformer from scratch: the package behind the book. The README says which chapter builds which file."""

__all__ = [
    "PRESETS",
    "Attention",
    "AttentionHead",
    "Block",
    "DropPath",
    "LinearPatchEmbed",
    "Mlp",
    "PatchEmbed",
    "PerHeadAttention",
    "ViT",
    "ViTConfig",
    "attention_weights",
    "diagnose",
    "fuse_heads",
    "fused_attention",
    "init_weights",
    "patchify",
    "plain_attention",
    "resample_pos_embed",
    "sincos_1d",
    "sincos_2d",
    "unpatchify",
]


def __getattr__(name: str) -> object:
    """These names and their rooms are imported when one is first asked for: meanwhile the command can answer Ctrl-C."""
    if name not in (*__all__, "attention", "clinic", "config", "encoder", "model", "patches", "positions"):
        raise AttributeError(f"module 'vit_tutorial' has no attribute {name!r}")
    import vit_tutorial.attention
    import vit_tutorial.clinic
    import vit_tutorial.config
    import vit_tutorial.encoder
    import vit_tutorial.model
    import vit_tutorial.patches
    import vit_tutorial.positions

    here = vit_tutorial
    for room in (here.attention, here.clinic, here.config, here.encoder, here.model, here.patches, here.positions):
        globals().update({each: value for each, value in vars(room).items() if each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
