"""Figures show the numbers they are given."""

import matplotlib

matplotlib.use("agg")

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from torch import nn

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


@pytest.mark.parametrize(
    ("shape", "titles", "message"),
    [
        ((1, 4, 5), None, r"must be \(b, c, H, W\), got torch.float32 of \(1, 4, 5\); images\[None\] is a batch of 1"),
        ((0, 2, 4, 5), None, r"got \(0, 2, 4, 5\)"),
        ((2, 3, 4, 5), ["a"], "there are 2 images and 1 titles; they must be equally many"),
    ],
)
def test_images_that_cannot_be_shown_are_refused(shape, titles, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        plots.show_images(torch.rand(shape), titles)


def test_spread_patches_by_hand():
    """A 2×4 picture in 1×2 patches: a gap of one pixel right of and below each patch, none at the border."""
    image = torch.arange(1.0, 9).reshape(1, 2, 4)
    assert plots.spread_patches(image, (1, 2), gap=1, paper=0).tolist() == [
        [[1, 2, 0, 3, 4], [0, 0, 0, 0, 0], [5, 6, 0, 7, 8]]
    ]
    assert torch.equal(plots.spread_patches(image, (1, 2), gap=0), image)
    assert torch.equal(plots.spread_patches(image, 2), plots.spread_patches(image, (2, 2)))
    with pytest.raises(ValueError, match="img_size height 2 is not divisible by patch_size height 3"):
        plots.spread_patches(image, 3)


def test_heatmap_labels_axes_and_scale():
    values = torch.tensor([[0.0, 0.25, 1.0], [0.5, 0.75, 0.125]], requires_grad=True)  # a parameter, say
    ax = plots.heatmap(values, xlabel="key", ylabel="query", label="weight")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    assert ax.figure.axes[1].get_ylabel() == "weight"
    np.testing.assert_array_equal(ax.images[0].get_array(), values.detach())
    assert ax.images[0].get_clim() == (0, 1)


def test_confusion_matrix_writes_every_count_and_tells_mistakes_by_their_colour():
    matrix = torch.tensor([[50, 2, 0], [0, 40, 0], [7, 0, 30]])
    ax = plots.confusion_matrix(matrix, ["ape", "bee", "cat"])
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {(0, 0): "50", (1, 0): "2", (1, 1): "40", (0, 2): "7", (2, 2): "30"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted class", "true class")
    cells = {(round(p.get_x() + 0.47), round(p.get_y() + 0.47)): p.get_facecolor() for p in ax.patches}
    assert cells.keys() == written.keys()  # no cell for a pair that does not occur
    right = {cells[i, i] for i in range(3)}
    assert len(right) == 1 and not right & {cells[1, 0], cells[0, 2]}
    assert cells[0, 2][:3] == cells[1, 0][:3] != cells[0, 0][:3]
    assert cells[0, 2][3] > cells[1, 0][3]  # seven mistakes are stronger than two
    assert matrix[0, 0] == 50  # the caller's matrix is left alone
    with pytest.raises(ValueError, match=r"the matrix is \(3, 3\), so it takes 3 names, got 2"):
        plots.confusion_matrix(matrix, ["ape", "bee"])


def test_style_colours_can_be_told_apart():
    """Neighbours in the palette differ in brightness, so they differ in grey print too."""
    plots.use_style()
    cycle = [entry["color"] for entry in plt.rcParams["axes.prop_cycle"]]
    assert cycle == plots.PALETTE
    brightness = [float(np.dot(to_rgb(colour), (0.3, 0.6, 0.1))) for colour in cycle]
    assert min(abs(a - b) for a, b in pairwise(brightness)) > 0.05


# Inside a model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corner", [(0, 0), (0, 4), (2, 0), (2, 4)])
def test_a_hot_patch_lies_on_its_own_pixels(corner):
    """12×10 pixels in 3×5 patches of 4×2."""
    values = torch.zeros(3, 5)
    values[corner] = 0.5
    drawn = plots.overlay_map(torch.rand(3, 12, 10), values, "layer 2, head 1", (0, 1))
    want = np.zeros((12, 10))
    want[4 * corner[0] : 4 * corner[0] + 4, 2 * corner[1] : 2 * corner[1] + 2] = 0.5
    np.testing.assert_array_equal(drawn.get_array(), want)
    ax = drawn.axes
    assert ax.images[0].get_extent() == drawn.get_extent() == [-0.5, 9.5, 11.5, -0.5]
    assert ax.images[0].origin == drawn.origin == "upper" and drawn.get_interpolation() == "nearest"
    assert drawn.get_clim() == (0, 1) and ax.get_title() == "layer 2, head 1"


def test_overlay_shows_bytes_and_shares_alike():
    image = torch.randint(0, 256, (3, 4, 6), dtype=torch.uint8)
    values = torch.rand(2, 2)
    as_bytes = plots.overlay_map(image, values, "a", (0, 1)).axes.images[0].get_array()
    np.testing.assert_allclose(as_bytes, 0.6 + 0.35 * (image / 255).mean(0), rtol=1e-5)  # pale and grey
    shares = plots.overlay_map(image / 255, values, "a", (0, 1)).axes.images[0].get_array()
    np.testing.assert_allclose(shares, as_bytes, rtol=1e-5)


def test_a_map_of_another_image_and_a_scale_that_falls_are_refused():
    with pytest.raises(ValueError, match="image width 10 is not divisible by the map's grid of 4"):
        plots.overlay_map(torch.rand(3, 12, 10), torch.rand(3, 4), "a", (0, 1))
    with pytest.raises(ValueError, match="must be finite and rise, got 1 and 0"):
        plots.overlay_map(torch.rand(3, 4, 6), torch.rand(2, 3), "a", (1, 0))


def test_maps_of_zeros_can_be_drawn():
    fig = plots.show_maps(torch.rand(1, 3, 4, 6), torch.zeros(1, 2, 3), ["a"])
    assert fig.axes[0].images[1].get_clim() == (0, 1)
    fig.canvas.draw()


def test_maps_share_one_scale_that_is_drawn():
    images, maps = torch.rand(3, 1, 4, 6), torch.rand(3, 2, 3) * torch.tensor([0.1, 1.0, 0.3])[:, None, None]
    fig = plots.show_maps(images, maps, ["a", "b", "c"], columns=2, label="share")
    panels = [ax for ax in fig.axes if len(ax.images) == 2]
    assert [ax.get_title() for ax in panels] == ["a", "b", "c"]
    for ax, image, values in zip(panels, images, maps, strict=True):
        np.testing.assert_allclose(ax.images[0].get_array(), 0.6 + 0.35 * image[0], rtol=1e-6)
        np.testing.assert_array_equal(ax.images[1].get_array()[::2, ::2], values)
        assert ax.images[1].get_clim() == (0, maps.max())
    assert fig.axes[-1].get_ylabel() == "share" and fig.axes[-1]._colorbar.extend == "neither"
    fig = plots.show_maps(images, maps, ["a", "b", "c"], limits=(0, 0.2))
    assert fig.axes[0].images[1].get_clim() == (0, 0.2) and fig.axes[-1]._colorbar.extend == "max"
    with pytest.raises(ValueError, match="there are 3 images, 3 maps and 2 titles"):
        plots.show_maps(images, maps, ["a", "b"])


def test_grid_of_heads_and_layers_names_each():
    maps = torch.rand(3, 2, 4, 5)  # layers, heads
    fig = plots.attention_grid(torch.rand(3, 8, 10), maps)
    panels = [ax for ax in fig.axes if len(ax.images) == 2]
    assert len(panels) == 6
    for place, ax in enumerate(panels):
        head, layer = divmod(place, 3)
        assert ax.get_title() == f"layer {layer + 1},\nhead {head + 1}"
        np.testing.assert_array_equal(ax.images[1].get_array()[::2, ::2], maps[layer, head])
        assert ax.get_subplotspec().rowspan.start == head and ax.get_subplotspec().colspan.start == layer


def test_distance_has_a_dot_for_each_head():
    distances = torch.tensor([[1.0, 5.0, 2.0], [4.0, 4.5, 7.0]])
    ax = plots.distance_by_depth(distances)
    points = [(x, y) for line in ax.lines for x, y in zip(*line.get_data(), strict=True)]
    assert points == [(1, 1), (1, 5), (1, 2), (2, 4), (2, 4.5), (2, 7)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("layer", "mean distance, pixels")
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 7
    line = plots.distance_by_depth(distances, everywhere=9.0).lines[-1]
    assert set(line.get_ydata()) == {9} and line.axes.get_ylim()[1] > 9


def test_similarity_of_positions_is_a_grid_of_grids():
    table = torch.randn(6, 7)  # 2 rows of 3 patches
    ax = plots.similarity_grid(table, (2, 3))
    shown = ax.images[0].get_array()
    assert shown.shape == (2 * 2 + 1, 3 * 3 + 2) and ax.images[0].get_clim() == (-1, 1)
    for place in range(6):
        row, col = divmod(place, 3)
        for other in range(6):
            down, right = divmod(other, 3)
            want = torch.cosine_similarity(table[place], table[other], dim=0)
            assert shown[3 * row + down, 4 * col + right] == pytest.approx(want.item(), abs=1e-5)
    assert shown.mask[2].all() and shown.mask[:, 3].all() and shown.mask[:, 7].all()  # the gaps


def test_a_table_with_the_class_token_s_position_is_refused():
    with pytest.raises(ValueError, match="the table has 7 rows, a grid of 2×3 patches needs 6"):
        plots.similarity_grid(torch.randn(7, 4), (2, 3))


def test_filters_share_one_scale_around_grey():
    weight = torch.tensor([[-1.0, 0.5], [0.0, 2.0]])[:, None, None].expand(2, 3, 4, 2)
    fig = plots.patch_filters(weight, columns=2)
    np.testing.assert_allclose(fig.axes[0].images[0].get_array()[0, :, 0], [0.25, 0.625])
    np.testing.assert_allclose(fig.axes[1].images[0].get_array()[0, :, 2], [0.5, 1.0])
    with pytest.raises(ValueError, match="1 or 3 channels can be shown as colours, these have 4"):
        plots.patch_filters(torch.rand(2, 4, 3, 3))


# While it trains -----------------------------------------------------------------------------------------------------

HISTORY = [
    {"train_loss": 2.0, "val_loss": 1.8, "train_accuracy": 0.3, "val_accuracy": 0.4, "lr": 1e-3, "seconds": 90.0},
    {"train_loss": 1.5, "val_loss": 1.4, "train_accuracy": 0.5, "val_accuracy": 0.6125, "lr": 1e-3, "seconds": 60.0},
]


def test_training_curves_are_the_history():
    loss, accuracy = plots.training_curves(HISTORY, epochs=10).axes
    lines = {line.get_label(): line.get_ydata() for line in accuracy.lines}
    assert list(lines["validation"]) == pytest.approx([40, 61.25])
    assert list(lines["training"]) == pytest.approx([30, 50])
    assert [list(line.get_ydata()) for line in loss.lines] == [[2.0, 1.5], [1.8, 1.4]]
    assert loss.get_xlim()[1] > 10
    with pytest.raises(ValueError, match="at least one epoch"):
        plots.training_curves([])


def test_live_curves_print_a_table_in_a_terminal(capsys):
    show = plots.LiveCurves(10)
    show(nn.Identity(), HISTORY[:1])
    show(nn.Identity(), HISTORY)
    assert capsys.readouterr().out.splitlines() == [
        "epoch   loss  validation  seconds   left",
        " 1/10  2.000       40.0%     90.0  13:30",
        " 2/10  1.500       61.3%     60.0  08:00",
    ]
    plots.LiveCurves(2)(nn.Identity(), HISTORY)  # a run that goes on begins with the epoch it has come to
    assert capsys.readouterr().out.splitlines()[1:] == ["  2/2  1.500       61.3%     60.0  00:00"]


def test_live_curves_redraw_one_figure_in_a_notebook(monkeypatch):
    shown = []

    class Display:
        def update(self, fig):
            shown.append(("again", fig._suptitle.get_text()))

    def display(fig, display_id):
        shown.append(("first", fig._suptitle.get_text()))
        return Display()

    monkeypatch.setattr("vit_tutorial.plots.training._in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    before = plt.get_fignums()
    show = plots.LiveCurves(2)
    show(nn.Identity(), HISTORY[:1])
    show(nn.Identity(), HISTORY)
    assert [how for how, _ in shown] == ["first", "again"]
    assert "1 of 2" in shown[0][1]
    assert "2 of 2" in shown[1][1]
    assert plt.get_fignums() == before
