"""The parts of today's blocks: positions that turn or are relative, other norms and MLPs, more tokens, other pools."""

from vit_tutorial.modern.blocks import LayerScale, ModernAttention, ModernBlock, RMSNorm, SwiGLU
from vit_tutorial.modern.registers import register_neurons, with_test_time_register
from vit_tutorial.modern.relative import (
    BiasedAttention,
    ShawAttention,
    relative_offsets,
    relative_position_index,
    resample_bias_table,
)
from vit_tutorial.modern.rope import (
    MixedRope,
    Rope,
    axial_angles,
    axial_rope,
    centred_coordinates,
    grid_coordinates,
    rotate,
)
from vit_tutorial.modern.tokens import (
    AttentionPoolLatent,
    ConvStem,
    ModernViT,
    PatchDropout,
    SequencePool,
    without_registers,
)

__all__ = [
    "AttentionPoolLatent",
    "BiasedAttention",
    "ConvStem",
    "LayerScale",
    "MixedRope",
    "ModernAttention",
    "ModernBlock",
    "ModernViT",
    "PatchDropout",
    "RMSNorm",
    "Rope",
    "SequencePool",
    "ShawAttention",
    "SwiGLU",
    "axial_angles",
    "axial_rope",
    "centred_coordinates",
    "grid_coordinates",
    "register_neurons",
    "relative_offsets",
    "relative_position_index",
    "resample_bias_table",
    "rotate",
    "with_test_time_register",
    "without_registers",
]
