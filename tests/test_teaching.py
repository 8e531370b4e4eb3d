"""What the teacher's two pages say: sections and figures are there, minutes add up, exam answers are right."""

import ast
import math
import re

import pytest
import torch
from notebook_rules import NOTEBOOKS, cells, page, paired, read
from torch import nn

from vit_tutorial import Block, ViT, ViTConfig, attention_weights, patchify, sincos_1d
from vit_tutorial.attention_maps import attention_mass, attention_rollout
from vit_tutorial.cli import main
from vit_tutorial.exercises import CHAPTERS, CheckFailed, exercise, find

GUIDE, BY_CHAPTER = page("book/teaching.md"), page("book/teaching_chapters.md")
PROSE = {int(path.stem[:2]): "\n\n".join(cell.source for cell in cells(read(path), "markdown")) for path in NOTEBOOKS}
CARD = re.compile(r"\*\*Exercise\.\*\* [★☆]{3} · (\d+) minutes\. ")


def headings(prose: str) -> set[str]:
    """The names of a chapter's sections, as the guide writes them."""
    return {name.replace("`", "") for name in re.findall(r"^##+ (.*)", prose, re.MULTILINE)}


def on_cards() -> dict[str, int]:
    """The minutes that each exercise's card says."""
    found = {}
    for path in NOTEBOOKS:
        minutes = CARD.findall(PROSE[int(path.stem[:2])])
        found |= zip(paired(read(path)), map(int, minutes), strict=True)
    return found


MINUTES = on_cards()


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the tables whose first column has this heading."""
    found = []
    for table in re.findall(rf"^\| {heading} \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        found += [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return found


def on_their_cards(names: str) -> int:
    return sum(MINUTES[name] for name in re.findall(r"`(\w+)`", names))


# The guide ---------------------------------------------------------------------------------------------------------


def named_sections(text: str) -> list[tuple[int, str]]:
    """Each section in quotation marks, with the chapter that was named last before it."""
    found, chapter = [], 0
    for number, section in re.findall(r'[Cc]hapter (\d+)|"([^"]+)"', text):
        chapter = int(number or chapter)
        found += [(chapter, section)] if section else []
    return found


def test_sections_that_the_plans_name_are_there():
    plans = [" ".join(row) for heading in ("minutes", "block", "session") for row in rows(GUIDE, heading)]
    named = [pair for plan in plans for pair in named_sections(plan)]
    assert len(plans) == 6 + 8 + 8 and len(named) > 30
    assert [pair for pair in named if pair[1] not in headings(PROSE[pair[0]])] == []


def test_a_section_that_is_not_there_is_found():
    assert named_sections('chapter 2 up to "A" and chapter 3: "B", "C"') == [(2, "A"), (3, "B"), (3, "C")]


@pytest.mark.parametrize("heading", ["block", "session"])
def test_a_plan_s_minutes_are_the_cards_and_leave_half_as_much_again(heading):
    for _, printed, _, exercises in rows(GUIDE, heading):
        together, alone = map(int, printed.split(" + "))
        assert alone == on_their_cards(exercises), exercises
        assert together + 1.5 * alone <= 90, exercises


def test_homework_takes_what_its_cards_say():
    homework = rows(GUIDE, "after session")
    assert len(homework) == len(rows(GUIDE, "session")) == 8
    assert all(int(printed) == on_their_cards(exercises) for _, printed, exercises in homework)


def test_the_lectures_take_the_time_that_they_say():
    lengths = [int(length) for length, *_ in rows(GUIDE, "minutes")]
    short, long = sum(lengths[:3]), sum(lengths[3:])
    assert short == 45 and short + long == 90


def test_the_term_s_minutes_are_those_of_the_exercises():
    table = rows(GUIDE, "chapter")
    for path, (chapter, _, reading, together, home, skipped) in zip(NOTEBOOKS, table, strict=True):
        number = int(path.stem[:2])
        assert f"notebooks/{path.name}" in chapter and chapter.startswith(f"[{number} · ")
        assert f"about {reading} minutes, plus exercises" in read(path).cells[0].source
        places = {name: where for name, _, where, *_ in exercise_rows(number)}
        assert int(together) == sum(MINUTES[name] for name, where in places.items() if where == "class")
        assert int(home) == sum(MINUTES[name] for name, where in places.items() if where == "home")
        assert int(reading) + int(together) <= 90
        assert set(skipped.split("; ")) <= headings(PROSE[number])


def test_every_deck_has_its_link():
    from slides import CHAPTERS as DECKS

    assert re.findall(r'href="\.\./slides/(\w+)\.html"', GUIDE) == list(DECKS)


def test_the_commands_of_the_guide_are_those_of_the_program(capsys):
    told = re.findall(r"vit-tutorial (handout|grade) (.*)", GUIDE)
    assert len(told) == 3
    helps = {}
    for command in ("handout", "grade"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        helps[command] = capsys.readouterr().out
    for command, arguments in told:
        assert all(option in helps[command] for option in re.findall(r"--[\w-]+", arguments))
    for option in re.findall(r"`(--[\w-]+)", GUIDE.split("(teaching-projects)=")[0]):  # those train
        assert any(option in text for text in helps.values())


def own_exercise() -> dict:
    """What the guide's file with an exercise of one's own defines."""
    (declared, _) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    exec(declared, scope := {})
    return scope


def test_the_guide_s_own_exercise_tells_its_mistakes(capsys):
    scope = own_exercise()
    task = scope["EXERCISES"]["patch_means"]
    assert exercise("patch_means", scope["patch_means"], scope["EXERCISES"]) is scope["patch_means"]
    assert "patch_means: correct" in capsys.readouterr().out
    for hint, mistake in task.mistakes.items():
        with pytest.raises(CheckFailed) as failure:
            exercise("patch_means", mistake, scope["EXERCISES"])
        assert hint in str(failure.value)

    def by_loops(images, patch_size):
        ph, pw = patch_size
        lines = [line.mean(dim=2) for line in images.split(ph, dim=2)]
        return torch.stack([torch.stack([p.mean(2) for p in line.split(pw, dim=2)], -1) for line in lines], 2)

    assert exercise("patch_means", by_loops, scope["EXERCISES"]) is by_loops


def test_the_guide_s_stub_goes_on_with_the_reference():
    scope = own_exercise()
    (_, stub) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    reference = scope["patch_means"]
    exec(stub, scope | {"exercise": exercise}, found := {})
    assert found["patch_means"] is reference


# Chapter by chapter ------------------------------------------------------------------------------------------------


def part(number: int) -> str:
    """What the page says of a chapter."""
    return re.search(rf"^## {number} · .*?(?=^## |\Z)", BY_CHAPTER, re.MULTILINE | re.DOTALL)[0]


def exercise_rows(number: int) -> list[list[str]]:
    return [[cell.strip("`") for cell in row] for row in rows(part(number), "exercise")]


def statements(code: str) -> int:
    """The lines on which a function's own statements begin."""
    body = ast.parse(code).body[-1].body
    return len({node.lineno for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt)})


def minutes(lines: int, decisions: int, ideas: int) -> int:
    """The page's rule."""
    return max(5, 5 * math.floor((2 + 1.5 * lines + decisions + 4 * ideas) / 5 + 0.5))


def test_the_rule_that_the_page_prints():
    assert r"2 + 1.5 \cdot \text{lines} + \text{decisions} + 4 \cdot \text{ideas}" in BY_CHAPTER
    assert (minutes(1, 0, 0), minutes(3, 2, 0), minutes(7, 3, 1)) == (5, 10, 20)  # 3.5, 8.5 and 19.5
    assert statements("def f(x):\n    if x:\n        return (\n            1\n        )\n    return 2") == 3
    assert sum(map(len, CHAPTERS.values())) == 75 and "74 of the 75 checks" in BY_CHAPTER


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_its_exercises_with_their_minutes(path):
    table, own = exercise_rows(int(path.stem[:2])), paired(read(path))
    assert [row[0] for row in table] == list(own)
    for name, printed, where, lines, *counts in table:
        assert int(lines) == statements(own[name][2]), name
        assert int(printed) == MINUTES[name] == minutes(int(lines), *map(int, counts)), name
        assert where in ("class", "home")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_aim_cures_questions_and_ten_points(path):
    number, text = int(path.stem[:2]), part(int(path.stem[:2]))
    assert text.startswith(f"## {read(path).cells[0].source.split(chr(10))[0].removeprefix('# ')}\n")
    assert re.findall(r"^\*\*([\w ]+?)\.?\*\*", text, re.MULTILINE) == [
        "Aim", "Misconceptions", "To discuss", "Exam question", "Model answer", "Rubric",
    ]  # fmt: skip
    sections = headings(PROSE[number])
    cures = re.findall(r'^\d\. \*"[^"]+"\* .*Cure: "([^"]+)"(.*)$', text, re.MULTILINE)
    assert len(cures) == 3
    for section, rest in cures:
        assert section in sections, section
        for figure in re.findall(rf"Figures? ({number}\.\d+)", rest):
            assert f"**Figure {figure}.**" in PROSE[number], figure
    assert text.count("?", text.index("**To discuss.**"), text.index("**Exam question.**")) >= 2
    rubric = text[text.index("**Rubric.**") :].replace("3 and not", "").replace("over 4", "").replace("n − 1", "")
    assert points(rubric) == 10


def points(rubric: str) -> int:
    """The points of a rubric: the first number of each part, and those of its parts where it says how they divide."""
    total = 0
    for _, body in re.findall(r"\(([a-e])\) (.*?)(?=\([a-e]\)|\Z)", rubric, re.DOTALL):
        if shared := re.findall(r"(\d) for", body):
            total += sum(map(int, shared)) * (2 if "for each test" in body else 1)
        else:
            total += int(re.search(r"\d", body)[0])
    return total


def test_points_of_a_rubric():
    assert points("(a) 2, one for each. (b) 2 for the weights, 1 for the rest. (c) 1 for each test.") == 7


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
