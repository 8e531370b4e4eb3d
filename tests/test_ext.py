"""What the book's own Sphinx extensions make of a page."""

import inspect
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pages import COLAB_BADGE, WORDS, finish, give_room, hang, keep_icons, keep_together, keep_whole, show_matrices
from PIL import Image
from rooms import tidy as tidy_page
from signatures import named
from sphinx.util.inspect import stringify_signature
from stand_ins import stand_ins

from vit_tutorial.archs.patients import Patient
from vit_tutorial.recipes import Recipe


def tidy(html: str) -> str:
    page = BeautifulSoup(html, "html.parser")
    tidy_page(page)
    return str(page)


def test_stand_ins_are_found_in_what_a_notebook_printed():
    def ran(*texts):
        outputs = [new_output("stream", name="stdout", text=text) for text in texts]
        return new_notebook(cells=[new_markdown_cell("Going on with 'x' instead"), new_code_cell("", outputs=outputs)])

    assert stand_ins(ran("accuracy 97 %")) == []
    assert stand_ins(ran("refused. Going on\nwith 'shapes' instead.", "Going on with 'digits' instead.")) == [
        "digits",
        "shapes",
    ]


def test_a_line_ends_before_or_after_a_size():
    page = BeautifulSoup("<p>2 × 3</p><article><p>16 × 16 <code>2 × 3</code> a × 3 · 4</p></article>", "html.parser")
    keep_together(page)
    assert page.text == "2 × 316\u00a0×\u00a016 2 × 3 a × 3\u00a0·\u00a04"


def test_a_vector_stays_in_one_line_and_numbers_of_a_sentence_do_not():
    page = BeautifulSoup("<article>eq. 4 in 1, 2 and (0, 10, 2), not (1, b, 2)</article>", "html.parser")
    keep_together(page)
    assert page.text == "eq.\u00a04 in 1, 2 and (0,\u00a010,\u00a02), not (1, b, 2)"


def test_a_figure_keeps_its_number_a_per_cent_its_sign_and_a_name_its_hyphen():
    html = "<p>Figure 3.2 has 5 % of CIFAR-10, chapter 7 a ViT-B/16, x-rays aside</p>"
    comment = "<!-- Figure 3.2 -->"
    page = BeautifulSoup(f"<article>{html}<code>a 5 % b</code>{comment}</article>{html}", "html.parser")
    keep_together(page)
    told, kept = (
        "Figure\u00a03.2 has 5\u00a0% of CIFAR-10, chapter\u00a07 a ViT-B/16, x-rays aside",
        page.select(".whole"),
    )
    assert page.article.p.text == told and page.code.text == "a 5 % b"
    assert str(page).endswith(f"{comment}</article>{html}")
    assert [name.text for name in kept] == ["CIFAR-10", "ViT-B/16"]


def test_titles_of_rooms_and_tables_have_the_text_s_apostrophes():
    html = "<article><details><summary>It's <code>'a'</code></summary>It's.</details><caption>ViT's</caption></article>"
    assert BeautifulSoup(tidy(html), "html.parser").text == "It’s 'a'It's.ViT’s"


def folded_cell(title: str, output: str) -> str:
    return (
        f'<div class="cell tag_hide-cell"><details class="hide above-input"><summary><p>{title}</p></summary>'
        f'<div class="cell_input"><pre>x = 1</pre></div><div class="cell_output">{output}</div></details></div>'
    )


ROOM = "<details><summary>Going deeper: why?</summary><p>Because.</p></details>"


def test_what_goes_deeper_stands_in_its_room_with_its_result_in_view():
    page = ROOM + folded_cell("Going deeper: measured", "<p>12</p>") + folded_cell("Going deeper: drawn", "<p>13</p>")
    soup = BeautifulSoup(tidy(page + "<p>On we go.</p>"), "html.parser")
    assert [element.name for element in soup.find_all(recursive=False)] == ["details", "p"]
    room = soup.details
    assert [cell.select_one("summary").text for cell in room.select("div.cell")] == ["Code", "Code"]
    assert [output.text for output in room.select("div.cell > div.cell_output")] == ["12", "13"]
    assert all("x = 1" in fold.text for fold in room.select("details.hide"))


def test_other_cells_stay_where_they_are():
    for other in (
        folded_cell("The numbers above, checked", "12"),
        "<p>Text.</p>" + folded_cell("Going deeper: x", "12"),
    ):
        assert tidy(ROOM + other) == ROOM + other
    alone = folded_cell("Going deeper: x", "12")
    assert tidy("<details><summary>Hint</summary></details>" + alone).endswith(alone)


def test_an_exercise_that_no_one_attempted_says_nothing():
    output = '<div class="output stream"><pre>{}</pre></div>'
    noise = output.format("patchify: not attempted yet. The chapter goes on with the reference.\n")
    page = '<div class="cell"><div class="cell_output">{}</div></div>'
    assert tidy(page.format(noise)) == '<div class="cell"></div>'
    other = output.format("patchify: right")
    assert tidy(page.format(noise + other)) == page.format(other)


# Signatures --------------------------------------------------------------------------------------------------------


def shown_signature(thing) -> str:
    return named(stringify_signature(inspect.signature(thing), unqualified_typehints=True), thing)


def test_a_default_that_is_a_function_or_made_anew_stands_by_its_name():
    patient, recipe = shown_signature(Patient), shown_signature(Recipe)
    assert "= ViT, select: " in patient and "= last_epoch, needs: " in patient
    assert "= ('nothing', ...), changes: dict[str, object] = dict())" in patient
    assert "= Augment(), precision" in recipe and "= ViTConfig(), arch" in recipe
    for signature in (patient, recipe):
        compile(f"def made{re.sub('~', '', signature)}: ...", "signature", "exec")
    assert named("(x: int = 3, y='<factory>')", print) == "(x: int = 3, y='<factory>')"


# Figures -----------------------------------------------------------------------------------------------------------


def finished(body: str, out: Path, head: str = "") -> BeautifulSoup:
    """A chapter after the last pass."""
    html = f"<html><head>{head}</head><body><article><h1>Title</h1>{body}</article></body></html>"
    (out / "notebooks").mkdir()
    return finish(html, out / "notebooks", out, new_notebook())


def test_a_page_keeps_room_for_its_pictures_and_the_theme_lets_them_be(tmp_path):
    Image.new("L", (12, 34)).save(tmp_path / "other.png")
    (tmp_path / "line.svg").write_text('<svg width="60pt" height="30pt"></svg>')
    first, other = finished('<img src="../line.svg"/><img src="../other.png"/>', tmp_path).select("img")
    assert (first["width"], first["height"], other["width"], other["height"]) == ("80", "40", "12", "34")
    assert "loading" not in first.attrs and other["loading"] == "lazy"
    assert first["class"] == other["class"] == ["dark-light"]


# Scripts, style sheets, icons --------------------------------------------------------------------------------------

HEAD = """<script src="_static/scripts/fontawesome.js"></script><script src="_static/documentation_options.js"></script>
<script>const THEBE_JS_URL = "x"</script><script src="searchindex.js"></script><script src="copybutton.js"></script>
<link rel="stylesheet" href="sphinx-design.min.css"/><link rel="stylesheet" href="custom.css"/>"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", ["_static/documentation_options.js", "custom.css"]),
        ('<div class="highlight">x</div>', ["_static/documentation_options.js", "copybutton.js", "custom.css"]),
        ('<p class="sd-card">x</p>', ["_static/documentation_options.js", "sphinx-design.min.css", "custom.css"]),
        (
            '<p id="search-results">x</p>',
            ["_static/documentation_options.js", "searchindex.js", "custom.css"],
        ),
    ],
)
def test_a_page_loads_what_it_needs(body, expected, tmp_path):
    page = finished(body, tmp_path, head=HEAD)
    assert [tag.get("src") or tag.get("href") for tag in page.select("script, link")] == expected
    waits = {tag["src"]: "defer" in tag.attrs for tag in page.select("script")}
    assert not waits.pop("_static/documentation_options.js")  # a script in the page goes on with it
    assert all(waits.values()) is ("search-results" not in body)


def test_a_page_asks_no_other_host_and_preloads_the_font_of_formulas(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/colab-badge.svg").write_text('<svg width="117" height="20"></svg>')
    page = finished(f'<img src="{COLAB_BADGE}"/><math><mi>x</mi></math>', tmp_path)
    assert (page.img["src"], page.img["width"]) == ("../_static/colab-badge.svg", "117")
    assert page.link["href"] == "../_static/formulas.woff2"


def test_a_long_line_of_code_knows_its_indentation():
    short, long = '    <span class="k">pass</span>', '    <span class="n">x</span> &lt; ' + 25 * "y"
    code = '<div class="highlight"><pre><span></span>{}\n\n{}\n</pre></div>'
    longest = f'    <span class="line" style="--in: 4">{long[4:]}</span>'
    assert hang(code.format(short, long)) == code.format(short, longest)
    for other in (code.format(short, long[:-8]), f"<pre>{long}</pre>"):  # 25 letters, and what is no code
        assert hang(other) == other
    assert BeautifulSoup(hang(code.format(short, long)), "html.parser").text == f"    pass\n\n    x < {25 * 'y'}\n"


def test_no_line_ends_at_a_hyphen_inside_a_word_of_code():
    line = '<span class="n">close</span>(a, b, <span class="mf">1e-4</span>) --name a-b - c  # {}-z'
    shown = hang(f'<div class="highlight"><pre>{line.format(40 * "y")}\n</pre></div>')
    found = BeautifulSoup(shown, "html.parser")
    assert [word.text for word in found.select(".whole")] == ["1e-4", "--name", "a-b"]
    assert found.text == f"close(a, b, 1e-4) --name a-b - c  # {40 * 'y'}-z\n"


def test_a_word_of_code_that_fills_a_narrow_line_may_break_before_a_dot_or_after_a_bracket():
    line = '    <span class="k">return</span> <span class="o">a</span>.mean(<span class="mf">1.5</span>) &lt; {}'
    for long, pieces in (
        ("self.mlp(norm(x)).mean(0)[f(1.5)]", ["self.mlp(", "norm(", "x))", ".mean(", "0)[", "f(", "1.5)]"]),
        ("x.y(z)", ["x.y(z)"]),
        ('"ab.cd/efghi.kl_mn_op_qr_st_uv_wx"', ['"ab.cd/', "efghi", '.kl_mn_op_qr_st_uv_wx"']),
    ):
        shown = BeautifulSoup(hang(f'<div class="highlight"><pre>{line.format(long)}\n</pre></div>'), "html.parser")
        assert shown.text == f"    return a.mean(1.5) < {long}\n"
        for wbr in shown.select("wbr"):
            wbr.replace_with("|")
        assert shown.text.split("< ")[1].strip().split("|") == pieces


def test_what_is_printed_of_a_matrix_is_a_table_between_its_words():
    output = '<div class="cell_output"><div class="output text_plain"><pre>{}\n</pre></div></div>'
    others = ("tensor([[1]])", "tensor([1,\n2])", "{'a': 1,\n2: 3}", "tensor([[[1],\n[2]]])")
    matrices = ("tensor([[1, -2],\n        [3,  4]], dtype=x)", "(tensor([[1],\n[2]]),\n tensor([[ 5.]]))")
    page = BeautifulSoup("".join(map(output.format, others + matrices)), "html.parser")
    show_matrices(page)
    assert [part.text.strip() for part in page.select("pre")] == list(others)
    tables = [[[cell.text for cell in row("td")] for row in table("tr")] for table in page("table")]
    assert tables == [[["1", "-2"], ["3", "4"]], [["1"], ["2"]], [["5."]]]
    assert page.table.text == "1 -2 \n3 4 \n"
    for table in page("table"):
        table.replace_with("#")
    assert [part.text for part in page.select(".matrices")] == ["tensor(#, dtype=x)", "(tensor(#), tensor(#))"]
    assert [part.text for part in page.select(".matrices .whole")] == 3 * ["tensor(#"]


def test_a_column_of_words_gets_room_and_long_code_in_it_may_break():
    name = '<code><span class="pre">{}</span></code>'
    long, short = name.format("vit.embeddings.cls_token(1.5)"), name.format("vit.norm")
    heads = '<tr><th>x</th><th style="a:b">x</th><th>x</th><th>x</th></tr>'
    cells = "".join(f"<td>{cell}</td>" for cell in (60 * "y", 60 * "z", "22 min", f"{long} {short}"))
    output = f'<div class="text_html"><table class="table">{heads}<tr>{cells}</tr></table></div>'
    page = BeautifulSoup(f"<article>{output}<table><td>x</table></article>", "html.parser")
    give_room(page)
    styles = [cell["style"] for cell in page.select("[style]")]
    assert styles == ["--room:10ch", f"a:b;--room:{WORDS}ch", "--room:6ch", "--room:13ch"]  # a third of 40
    assert page.div["class"] == ["text_html", "pst-scrollable-table-container"]
    assert [part.text for part in page.select(".whole")] == ["vit.norm"]
    pieces = ["vit.embeddings", ".cls_", "token(", "1.5)", "vit.norm"]
    assert [part.text for part in page.select(".pre")] == pieces
    assert [wbr.get("class") for wbr in page.select("wbr")] == [None, ["narrow"], None]


def test_short_code_in_a_sentence_stays_in_one_line_and_of_long_code_each_short_word():
    word, long = '<span class="pre">{}</span>', 31 * "x"
    codes = [" ".join(map(word.format, code.split())) for code in ("(b, n)", f"short {long}", long)]
    elsewhere = "<pre><code>a</code></pre><table><td><code>b</code></table>"
    sentence = "".join(f"<code>{code}</code>" for code in codes)
    page = BeautifulSoup(f"<article>{sentence}{elsewhere}</article>", "html.parser")
    keep_whole(page)
    assert [(part.name, part.text) for part in page.select(".whole")] == [("code", "(b, n)"), ("span", "short")]


def test_a_long_call_in_a_sentence_may_break_after_its_name():
    long = f'<span class="pre">measure({30 * "x"},</span> <span class="pre">n)</span>'
    page = BeautifulSoup(f"<article><code>{long}</code></article>", "html.parser")
    keep_whole(page)
    assert [part.text for part in page.select(".whole")] == ["measure(", "n)"]
    assert page.wbr.previous_sibling.text == "measure(" and page.text == f"measure({30 * 'x'}, n)"


def test_a_name_too_long_for_a_line_breaks_before_its_dots_and_then_after_underscores():
    word = '<code><span class="pre">{}</span></code>'
    calls = "model.activation_checkpointing_enable_now()", "ViTForImageClassification.from_pretrained(name)"
    page = BeautifulSoup(f"<article>{''.join(map(word.format, calls))}</article>", "html.parser")
    keep_whole(page)
    first = ["model", ".activation_", "checkpointing_", "enable_", "now()"]
    second = ["ViTForImageClassification", ".from_pretrained(", "name)"]
    assert [[part.text for part in code.select(".whole")] for code in page.select("code")] == [first, second]
    assert len(page.select("wbr")) == 4 + 2 and page.text == "".join(calls)


def test_fonts_of_icons_keep_what_is_shown(tmp_path):
    import pydata_sphinx_theme

    theme = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
    for name in ("styles/pydata-sphinx-theme.css", "vendor/fontawesome/webfonts/fa-solid-900.woff2"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((theme / name).read_bytes())
    keep_icons(tmp_path, {"fa-rocket", "fa-lg"})
    font = tmp_path / "vendor/fontawesome/webfonts/fa-solid-900.woff2"
    letters = TTFont(font).getBestCmap()
    assert 0xF135 in letters and 0xF0EB in letters  # a rocket, and the light bulb of hints
    assert 0xF0C9 not in letters and font.stat().st_size < 10_000
