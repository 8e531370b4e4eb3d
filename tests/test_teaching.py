"""What the teacher's two pages say: sections and exercises are there, commands work, exam answers are right."""

import math
import re

import pytest
import torch
from notebook_rules import NOTEBOOKS, cells, page, read
from torch import nn

from vit_tutorial import Block, ViT, ViTConfig, attention_weights, patchify, sincos_1d
from vit_tutorial.attention_maps import attention_mass, attention_rollout
from vit_tutorial.cli import main
from vit_tutorial.exercises import CHAPTERS, CheckFailed, exercise, find

GUIDE, BY_CHAPTER = page("book/teaching.md"), page("book/teaching_chapters.md")
PROSE = {int(path.stem[:2]): "\n\n".join(cell.source for cell in cells(read(path), "markdown")) for path in NOTEBOOKS}


def headings(number: int) -> set[str]:
    """The names of a chapter's sections, as the guide writes them."""
    return {name.replace("`", "") for name in re.findall(r"^##+ (.*)", PROSE[number], re.MULTILINE)}


def part(number: int) -> str:
    """What the page says of a chapter."""
    return re.search(rf"^## {number} · .*?(?=^## |\Z)", BY_CHAPTER, re.MULTILINE | re.DOTALL)[0]


def test_sections_and_exercises_that_the_plans_name_are_there():
    plans = [line for line in GUIDE.splitlines() if re.match(r"\| \d+ \|", line)]  # of lectures, blocks, sessions
    chapter, named = 0, []
    for number, section in re.findall(r'[Cc]hapter (\d+)|"([^"]+)"', "\n".join(plans)):
        chapter = int(number or chapter)
        named += [(chapter, section)] if section else []
    assert len(named) > 30
    assert [(chapter, section) for chapter, section in named if section not in headings(chapter)] == []
    exercises = {name for line in plans for name in re.findall(r"`(\w+)`", line)}
    assert len(exercises) > 30 and exercises <= {name for names in CHAPTERS.values() for name in names}
    for number, skipped in re.findall(r"^\| \[(\d+) · .*\| (.*?) \|$", GUIDE, re.MULTILINE):
        assert set(skipped.split("; ")) <= headings(int(number))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_its_exercises_three_cures_and_an_exam(path):
    number = int(path.stem[:2])
    text = part(number)
    assert re.findall(r"^\| `(\w+)` \| \d+ \| (?:class|home) \|", text, re.MULTILINE) == list(CHAPTERS[path.stem[3:]])
    cures = re.findall(r'^\d\. \*"[^"]+"\* .*Cure: "([^"]+)"', text, re.MULTILINE)
    assert len(cures) == 3 and set(cures) <= headings(number)
    assert all(f"**{title}" in text for title in ("Aim", "To discuss", "Exam question", "Model answer", "Rubric"))


def test_the_commands_of_the_guide_are_those_of_the_program(capsys):
    helps = ""
    for command in ("handout", "grade"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        helps += capsys.readouterr().out
    told = re.findall(r"vit-tutorial (?:handout|grade) .*|`--[\w-]+", GUIDE.split("(teaching-projects)=")[0])
    options = {option for line in told for option in re.findall(r"--[\w-]+", line)}
    assert len(options) > 5 and all(option in helps for option in options)


def test_the_guide_s_own_exercise_tells_its_mistakes(capsys):
    declared, stub = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    exec(declared, scope := {})
    reference = scope["patch_means"]
    assert exercise("patch_means", reference, scope["EXERCISES"]) is reference
    assert "patch_means: correct" in capsys.readouterr().out
    for hint, mistake in scope["EXERCISES"]["patch_means"].mistakes.items():
        with pytest.raises(CheckFailed, match=re.escape(hint)):
            exercise("patch_means", mistake, scope["EXERCISES"])
    exec(stub, scope | {"exercise": exercise}, found := {})
    assert found["patch_means"] is reference


def says(number: int, *phrases: str) -> None:
    """The model answer of a chapter has these words, one after the other."""
    answer = part(number).split("**Model answer.**")[1].split("**Rubric.**")[0]
    place = 0
    for phrase in phrases:
        place = answer.find(phrase, place)
        assert place >= 0, f"chapter {number}: {phrase!r}"


def test_exam_1_patches():
    image = torch.arange(3 * 96 * 160).reshape(1, 3, 96, 160)
    tokens = patchify(image, (8, 16))[0]
    token, entry = (tokens == image[0, 1, 50, 100]).nonzero()[0].tolist()
    says(1, f"{tokens.shape[0]} tokens", f"{tokens.shape[1]} numbers", f"= {token}.", f"= {entry}.")


def test_exam_2_positions():
    table = sincos_1d(8, 4)
    says(2, ", ".join(f"{value:.3f}".replace("-", "−") for value in table[2].tolist()))
    near, far = (torch.cosine_similarity(table[p], table[p + 2], dim=0).item() for p in (0, 5))
    says(2, f"= {near:.3f}.", f"(c) {far:.3f} as well")


def test_exam_3_attention():
    query = torch.tensor([[2.0, 0, 2, 0]])
    keys = torch.tensor([[1.0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0]])
    values = torch.tensor([[6.0, 0], [0, 6], [0, 0]])
    weights = attention_weights(math.log(2) * query, keys)
    torch.testing.assert_close(weights, torch.tensor([[4 / 7, 2 / 7, 1 / 7]]))
    torch.testing.assert_close(weights @ values, torch.tensor([[24 / 7, 12 / 7]]))
    torch.testing.assert_close(attention_weights(math.log(2) * query, keys + 1), weights)
    wrong = attention_weights(math.log(2) * query / 2, keys)[0].tolist()  # √16 in place of √4
    says(3, "4/7, 2/7, 1/7", "(24/7, 12/7)", ", ".join(f"{weight:.3f}" for weight in wrong))


def test_exam_4_encoder():
    token = torch.tensor([1.0, 3, 5, 7])
    normed = nn.functional.layer_norm(token, (4,), eps=0)
    torch.testing.assert_close(nn.functional.layer_norm(3 * token, (4,), eps=0), normed)
    block = Block(64, 4)
    parts = [sum(p.numel() for p in module.parameters()) for module in (block.attn, block.mlp, block)]
    says(4, ", ".join(f"{value:.3f}".replace("-", "−") for value in normed.tolist()), *(f"{n:,}" for n in parts))


def test_exam_5_model():
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 4, "num_classes": 10}
    model, other = (ViT(ViTConfig(**sizes, num_heads=heads)) for heads in (4, 8))
    count = sum(p.numel() for p in model.parameters())
    assert count == sum(p.numel() for p in other.parameters())
    assert f"a block has {sum(p.numel() for p in model.blocks[0].parameters()):,} parameters" in part(5)
    floor = nn.functional.cross_entropy(torch.eye(10), torch.arange(10)).item()
    says(5, f"= {model.pos_embed.shape[1]}.", f"together {count:,}", f"{math.log(10):.3f}", f"{floor:.3f}")


def test_exam_6_training():
    mean = find("mean_over_images").reference(torch.tensor([0.5, 0.4, 0.3, 2.0]), torch.tensor([64, 64, 64, 8]))
    rate = find("warmup_cosine").reference
    says(6, f"= {mean:.3f}", f"means is {(0.5 + 0.4 + 0.3 + 2.0) / 4:.1f}", f"{rate(4, 100, 20, 0.01):.4f}")
    says(6, f"{rate(20, 100, 20, 0.01):.2f}", f"{rate(60, 100, 20, 0.01):.3f}", f"{0.9 * 0.95:.1%}".replace("%", " %"))


def test_exam_7_recipes():
    confidence = torch.tensor([0.95] * 80 + [0.60] * 20)
    right = torch.tensor([1] * 68 + [0] * 12 + [1] * 14 + [0] * 6)
    error = find("expected_calibration_error").reference(torch.stack([confidence, 1 - confidence], 1), 1 - right, 10)
    kept = [min(0.998, (step + 1) / (step + 10)) for step in range(5000)]
    first = kept.index(0.998)
    says(7, f"= {error:.2f}.", f"90/99 = {kept[89]:.3f}", f"{first:,}")


def test_exam_8_attention_maps():
    maps = [torch.tensor(rows)[None, None] for rows in ([[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])]
    rolled = attention_rollout(maps)[0].tolist()
    mask = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]).bool()[None]
    mass = attention_mass(torch.tensor([[[0.1, 0.2], [0.3, 0.4]]]), mask).item()
    says(8, str(rolled), f"= {mass:.2f}")


def test_exam_9_pretrained():
    rows_of = torch.arange(18.0)[:, None].expand(18, 6)
    keys = find("split_in_proj").reference(rows_of, 2)[1][1][:, 0].tolist()
    maps = 12 * 6 * 197**2 * 8 * 4
    says(9, "{:.0f}, {:.0f} and {:.0f}".format(*keys), f"{4 * 22} MB", f"{16 * 22} MB", f"{maps / 1e6:.0f} MB")


def test_exam_10_what_matters():
    base, changed = torch.tensor([80.0, 82, 84]), torch.tensor([85.0, 87, 89])
    effect, low, high = find("effect_interval").reference(base, changed)
    assert sum(after < before for before in base for after in changed) == 0
    says(10, f"The effect is {effect:.0f}", f"{(high - low) / 2:.2f}: from {low:.2f} to {high:.2f}", "(b) None")


def test_exam_11_speed():
    in_turn = [1 / (1 / 1000 + 1 / model) for model in (4000, 8000)]
    count = {n: sum(find("block_multiply_adds").reference(n, 384, 4.0)) for n in (196, 784)}
    front = find("pareto_front").reference(torch.tensor([1.0, 2, 3, 3]), torch.tensor([70.0, 69, 80, 80]))
    assert front.tolist() == [True, False, True, True]
    says(11, f"{in_turn[0]:.0f} a second", f"{in_turn[1]:.0f}", f"{6 * 384:,}", f"{count[784] / count[196]:.2f}")


def test_exam_12_clinic():
    best = torch.randn(100_000, 10).amax(dim=1).mean().item()
    assert best == pytest.approx(1.54, abs=0.01)
    points = 100 * math.sqrt(0.8 * 0.2 / 400)
    says(12, f"= {points:.0f} points", f"= {80 + 1.54 * points:.1f} %")


def test_exam_13_modern():
    vector = torch.tensor([[1.0, 0, 1, 0]])
    angles = torch.deg2rad(torch.tensor([[[180.0, 60]], [[450, 150]], [[1080, 360]], [[1350, 450]]]))
    query, key, moved_query, moved_key = (find("rotate_pairs").reference(vector, turned)[0] for turned in angles)
    for turned in (query, key):
        rounded = turned.mul(1000).round().div(1000) + 0.0  # no −0
        says(13, ", ".join(f"{x:.3f}".replace("-", "−").replace(".000", "") for x in rounded.tolist()))
    scores = [(q @ k).item() / 2 for q, k in ((query, key), (moved_query, moved_key))]
    assert scores == pytest.approx([0, 0], abs=1e-5)
    says(13, "the score is 0.000", "The same, 0.000", f"= {find('relative_position_index').reference(5, 7).max() + 1},")
    ones = torch.ones(1, 4)
    says(13, str(tuple(find("rms_norm").reference(ones, ones[0]).round().int()[0].tolist())))
    says(13, str(tuple(nn.functional.layer_norm(ones, (4,)).int()[0].tolist())))
