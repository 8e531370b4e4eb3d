"""Figures show the numbers they are given."""

import matplotlib

matplotlib.use("agg")

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from vit_tutorial import plots


@pytest.fixture(autouse=True)
def fresh_figures():
    with plt.rc_context():
        yield
    plt.close("all")


def test_show_images_keeps_pixels_and_order():
    images = torch.rand(3, 1, 4, 5)
    fig = plots.show_images(images, ["a", "b", "c"], columns=2)
    shown = [ax for ax in fig.axes if ax.images]
    assert [ax.get_title() for ax in shown] == ["a", "b", "c"]
    for ax, image in zip(shown, images, strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), image[0])
        assert ax.images[0].get_clim() == (0, 1)  # one scale for all: a dark image stays dark


def test_show_images_takes_bytes_as_they_are():
    fig = plots.show_images(torch.full((1, 1, 2, 2), 128, dtype=torch.uint8))
    assert fig.axes[0].images[0].get_clim() == (0, 255)


def test_spread_patches_by_hand():
    """A 2×4 picture in 1×2 patches: a gap of one pixel right of and below each patch, none at the border."""
    image = torch.arange(1.0, 9).reshape(1, 2, 4)
    assert plots.spread_patches(image, (1, 2), gap=1, paper=0).tolist() == [
        [[1, 2, 0, 3, 4], [0, 0, 0, 0, 0], [5, 6, 0, 7, 8]]
    ]
    assert torch.equal(plots.spread_patches(image, (1, 2), gap=0), image)


def test_heatmap_labels_axes_and_scale_and_writes_numbers():
    values = torch.tensor([[0.0, 0.25, 1.0], [0.5, 0.75, 0.125]])
    ax = plots.heatmap(values, xlabel="key", ylabel="query", label="weight", annotate=".3f", limits=(0, 1))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    assert ax.figure.axes[1].get_ylabel() == "weight"
    assert [text.get_text() for text in ax.texts] == [format(v, ".3f") for v in values.flatten().tolist()]
    # viridis is dark at 0 and bright at 1, so the letters must be light on the one and dark on the other
    assert ax.texts[0].get_color() == "white"
    assert ax.texts[2].get_color() == "black"


def test_confusion_matrix_writes_every_count_and_colours_only_mistakes():
    matrix = torch.tensor([[50, 2, 0], [0, 40, 0], [7, 0, 30]])
    ax = plots.confusion_matrix(matrix, ["ape", "bee", "cat"])
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {(0, 0): "50", (1, 0): "2", (1, 1): "40", (0, 2): "7", (2, 2): "30"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted class", "true class")
    np.testing.assert_array_equal(ax.images[0].get_array(), [[0, 2, 0], [0, 0, 0], [7, 0, 0]])
    assert matrix[0, 0] == 50  # the caller's matrix is left alone


def test_style_colours_can_be_told_apart():
    """Neighbours in the palette differ in brightness, so they differ in grey print too."""
    plots.use_style()
    cycle = [entry["color"] for entry in plt.rcParams["axes.prop_cycle"]]
    assert cycle == plots.PALETTE
    brightness = [float(np.dot(to_rgb(colour), (0.3, 0.6, 0.1))) for colour in cycle]
    assert min(abs(a - b) for a, b in pairwise(brightness)) > 0.05
