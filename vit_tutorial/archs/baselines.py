"""What a Vision Transformer is compared with: a ResNet, post-norm blocks, shuffled images (chapter 10)."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import Block
from vit_tutorial.model import ViT
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.validate import checked


class PostNormBlock(Block):
    """A block of the original transformer: each norm follows a residual sum.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        x = self.norm1(x + self.drop_path(self.attn(x)))
        return self.norm2(x + self.drop_path(self.mlp(x)))


def post_norm(config: ViTConfig) -> ViT:
    """A ViT with post-norm blocks. Each ends with a norm, so the config should have ``final_norm=False``."""
    return ViT(config, block=PostNormBlock)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch norms, and a shortcut around them.

    Args:
        in_chans, out_chans: channels. If they differ or ``stride`` is 2, the shortcut is a 1×1 convolution.
        stride: 2 halves height and width.

    Shapes:
        ``(b, in_chans, H, W)`` to ``(b, out_chans, ⌈H / stride⌉, ⌈W / stride⌉)``.

    Source: He et al. 2016, "Deep residual learning for image recognition", section 3.3.
    """

    def __init__(self, in_chans: int, out_chans: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, out_chans, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_chans)
        self.conv2 = nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_chans)
        self.shortcut = nn.Identity()
        if (in_chans, stride) != (out_chans, 1):
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_chans, out_chans, 1, stride, bias=False), nn.BatchNorm2d(out_chans)
            )

    def forward(self, x: Float[Tensor, "b c H W"]) -> Float[Tensor, "b d H2 W2"]:
        out = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (out + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A small residual network: a stem that halves the image, three stages, a mean over positions, a head.

    Args:
        in_chans: colour channels of the images.
        num_classes: outputs of the head.
        width: channels of the first stage; each of the next two doubles them and halves the image.

    Shapes:
        images ``(b, in_chans, H, W)`` to logits ``(b, num_classes)``; any size.
    """

    def __init__(self, in_chans: int, num_classes: int, width: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(in_chans, width, 3, 2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        chans = [width, width, 2 * width, 4 * width]
        self.blocks = nn.Sequential(*(ResidualBlock(a, b, stride=1 if a == b else 2) for a, b in pairwise(chans)))
        self.head = nn.Linear(chans[-1], num_classes)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b k"]:
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))


class Shuffled(nn.Module):
    """A model that sees every image with its patches shuffled, always in the same order.

    Args:
        model: what reads the shuffled images.
        img_size: pixels, (height, width).
        patch_size: pixels, (height, width); (1, 1) shuffles single pixels.
    """

    def __init__(self, model: nn.Module, img_size: tuple[int, int], patch_size: tuple[int, int]):
        super().__init__()
        self.model, self.patch_size = model, patch_size
        self.grid_size = (img_size[0] // patch_size[0], img_size[1] // patch_size[1])
        generator = torch.Generator().manual_seed(0)  # on the CPU, so that every device has the same order
        order = torch.randperm(self.grid_size[0] * self.grid_size[1], generator=generator, device="cpu")
        self.register_buffer("order", order, persistent=False)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b ..."]:
        patches = patchify(images, self.patch_size)[:, self.order]
        return self.model(unpatchify(patches, self.patch_size, self.grid_size))


@checked
def resnet_like(config: ViTConfig) -> ResNet:
    """The widest :class:`ResNet` with at most as many parameters as the config's ViT."""

    def count(model: nn.Module) -> int:
        return sum(p.numel() for p in model.parameters())

    width, sizes = 1, (config.in_chans, config.num_classes)
    with torch.device("meta"):  # so that counting draws no random numbers: they would change the weights below
        most = count(ViT(config))
        while count(ResNet(*sizes, width + 1)) <= most:
            width += 1
    return ResNet(*sizes, width)
