"""What the book's own Sphinx extensions make of a page."""

import inspect
import re
from pathlib import Path

from bs4 import BeautifulSoup
from index_terms import TERMS
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import NOTEBOOKS, cells, read
from pages import COLAB_BADGE, finish, hang, keep_whole
from PIL import Image
from rooms import tidy as tidy_page
from signatures import named
from sphinx.util.inspect import stringify_signature
from stand_ins import stand_ins, warn

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


def test_titles_of_rooms_and_tables_have_the_text_s_apostrophes():
    html = "<article><details><summary>It's <code>'a'</code></summary>It's.</details><caption>ViT's</caption></article>"
    assert BeautifulSoup(tidy(html), "html.parser").text == "It’s 'a'It's.ViT’s"


def folded_cell(title: str, output: str) -> str:
    return (
        f'<div class="cell tag_hide-cell"><details class="hide above-input"><summary><p>{title}</p></summary>'
        f'<div class="cell_input"><pre>x = 1</pre></div><div class="cell_output">{output}</div></details></div>'
    )


ROOM = "<details><summary>Going deeper: why?</summary><p>Because.</p></details>"


def test_a_banner_takes_the_place_of_the_warnings_that_it_sums_up():
    said = "<div class='cell_output'><div class='output stderr'>{}</div></div>"
    told, other = said.format("MNIST is missing.\nGoing on\nwith 'digits' instead."), said.format("DeprecationWarning")
    page = BeautifulSoup(f"<article><h1>Title</h1>{told}{other}</article>", "html.parser")
    warn(page, ["digits"])
    assert "small digits stand in for them" in page.select_one("h1 + .stand-in").text
    assert [output.text for output in page.select(".cell_output")] == ["DeprecationWarning"]


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


def test_index_terms_lead_to_headings_that_are_there_once():
    text = "\n".join(cell.source for path in NOTEBOOKS for cell in cells(read(path), "markdown"))
    headings = [line.replace("'", "’").strip("# ") for line in text.split("\n") if line.startswith("#")]
    assert {heading: headings.count(heading) for heading in TERMS} == dict.fromkeys(TERMS, 1)


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


# What stands in one line --------------------------------------------------------------------------------------------


def test_a_page_asks_no_other_host_and_preloads_the_font_of_formulas(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/colab-badge.svg").write_text('<svg width="117" height="20"></svg>')
    page = finished(f'<img src="{COLAB_BADGE}"/><math><mi>x</mi></math>', tmp_path)
    assert (page.img["src"], page.img["width"]) == ("../_static/colab-badge.svg", "117")
    assert page.link["href"] == "../_static/formulas.woff2"


def test_what_must_not_break_has_the_class_that_says_so():
    told = "Figure 3.2 has 5 % of 16 × 16 × 3, 4.5 ± 0.3 %, chapter 7 a ViT-B/16, in 1, 2 and (0, 10, 2), not (1, b)"
    codes = f"<code>(b, n)</code><code>{31 * 'x'}</code><table><td><code>{11 * 'y'}</code><code>z</code></td></table>"
    comment = "<!-- Figure 3.2 -->"
    page = BeautifulSoup(
        f"<p>{told}</p><article><p>{told}</p><pre>{told}</pre>{codes}{comment}</article>", "html.parser"
    )
    text = page.text
    keep_whole(page)
    kept = ["Figure 3.2", "5 %", "16 × 16 × 3", "4.5 ± 0.3 %", "chapter 7", "ViT-B/16", "(0, 10, 2)", "(b, n)", "z"]
    assert [part.text for part in page.select(".whole")] == kept
    assert page.text == text and comment in str(page)


def test_a_long_line_of_code_knows_its_indentation():
    short, long = '    <span class="k">pass</span>', '    <span class="n">x</span> &lt; ' + 25 * "y"
    code = '<div class="highlight"><pre><span></span>{}\n\n{}\n</pre></div>'
    longest = f'    <span class="line" style="--in: 4">{long[4:]}</span>'
    assert hang(code.format(short, long)) == code.format(short, longest)
    for other in (code.format(short, short), f"<pre>{long}</pre>"):  # 8 letters, and what is no code
        assert hang(other) == other


def test_a_line_of_code_breaks_between_words_and_not_at_their_hyphens():
    code = '<div class="highlight"><pre><span></span>{}\n</pre></div>'
    shell = "vit-tutorial<span> </span>grade<span> </span>submissions.zip<span> </span>--out<span> </span>grades.csv"
    number = (
        '<span class="n">optimizer</span> <span class="o">=</span> AdamW(parameters, lr<span>=</span><span>1e-3</span>)'
    )
    minus = "every_row_but_the_last_of_them = rows[:n - 1] - 1"
    found = {text: BeautifulSoup(hang(code.format(text)), "html.parser") for text in (shell, number, minus)}
    whole = [[part.text for part in page.select(".whole")] for page in found.values()]
    assert whole == [["vit-tutorial", "--out"], ["1e-3"], []]
    for text, page in found.items():
        assert page.pre.text.strip() == BeautifulSoup(text, "html.parser").text and not page.select("wbr")


def test_a_word_that_no_line_holds_breaks_at_its_brackets_and_dots():
    words = '<span class="n">images_of_the_first_class</span><span class="p">()</span><span class="o">.</span>sort(key)'
    page = BeautifulSoup(hang(f'<div class="highlight"><pre>{words}\n</pre></div>'), "html.parser")
    parts = re.split("<wbr/>", str(page.select_one(".line")))
    assert [BeautifulSoup(part, "html.parser").text for part in parts] == [
        "images_of_the_first_class()",
        ".sort(",
        "key)",
    ]


def test_a_name_in_a_table_goes_on_behind_an_underscore_and_takes_its_comma_along():
    names = ["forward_features</span>", "--model.depth</span> 12"]
    cell = f"<td>{', '.join(f'<code><span class=pre>{name}</code>' for name in names)}</td>"
    far = f"<p><code>vit_tutorial.data.folders.folder_changes</code> <code>{31 * 'x '}a_b</code></p>"
    signature = '<dt class="sig">Sequence<span class="p">[</span>float<span class="p">]</span></dt>'
    page = BeautifulSoup(f"<article><table>{cell}</table>{far}{signature}</article>", "html.parser")
    text = page.text
    keep_whole(page)
    name, option, dotted, spaced = page.select("code")
    assert str(name.span.decode_contents()) == "forward_<wbr/>features"  # none at its end, before the comma
    assert option.span["class"] == ["pre", "whole"] and not option.select("wbr") and page.text == text
    assert dotted.decode_contents().split("<wbr/>") == ["vit_", "tutorial.", "data.", "folders.", "folder_", "changes"]
    assert not spaced.select("wbr")
    assert [part.name for part in page.dt.contents] == [None, "span", "wbr", None, "span"]
