"""What a page from disk may run: modules as one script inside it."""

import json
import re
import shutil
import subprocess

import pytest
from _ext.live import FIRST, MODULES, bundle, enliven, lines_of, substitutions, write_files
from bs4 import BeautifulSoup

from vit_tutorial import patchify
from vit_tutorial.live import INTERVENTIONS, MEASURED

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


@pytest.fixture
def written(tmp_path):
    """Writes modules, and gives the first one's path."""

    def write(**sources: str):
        for name, source in sources.items():
            (tmp_path / f"{name}.mjs").write_text(source, encoding="utf-8")
        return tmp_path / f"{next(iter(sources))}.mjs"

    return write


def run(script: str) -> str:
    """What a bundle prints, as the page's parser would hand it to JavaScript."""
    code = BeautifulSoup(script, "html.parser").script.string
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PAGE = """import { twice } from "./twice.mjs";
import { ONE, three } from "./numbers.mjs";
const factor = "the page's own";
console.log(twice(ONE), three(), factor, "</script><!--");
"""
TWICE = """// Twice.
/** A module
    of its own. */
import { TWO } from "./numbers.mjs";
const factor = TWO;
export function twice(x) { return factor * x; }
"""
NUMBERS = """export const ONE = 1, TWO = 2;
console.log("once");
export const three = () => ONE + TWO;
"""


@needs_node
def test_modules_run_in_order_each_once_with_their_own_names(written):
    script = bundle(written(page=PAGE, twice=TWICE, numbers=NUMBERS))
    assert run(script).split() == ["once", "2", "3", "the", "page's", "own", "</script><!--"]
    assert script.count("</script") == 1 and "<!--" not in script and "of its own" not in script


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"a": 'import { x } from "./b.mjs";\n', "b": "const x = 1;\n"}, "b.mjs does not export x"),
        ({"a": 'import { x } from "./b.mjs";\n', "b": 'import { y } from "./a.mjs";\n'}, "a.mjs imports itself"),
        ({"a": 'import { x } from "three";\n'}, "a.mjs: 'import"),
    ],
)
def test_what_cannot_be_put_together_is_refused(sources, message, written):
    with pytest.raises(ValueError, match=message):
        bundle(written(**sources))


def test_a_page_gets_each_script_that_it_asks_for_once_and_unchanged():
    asks = '<p data-live="vit"></p><p data-live="digit"></p><p data-live="vit"></p>'
    page = BeautifulSoup(f"<body><article>{asks}</article></body>", "html.parser")
    enliven(page)
    assert re.findall(r'<script type="module">.*?</script>', str(page), re.DOTALL) == [
        bundle(MODULES / "vit.mjs"),
        bundle(MODULES / "digit.mjs"),
    ]
    assert page.body.contents[-1].name == "script"


# The page "Draw a digit" -------------------------------------------------------------------------------------------


def test_the_lines_shown_are_the_package_s_own():
    assert lines_of(patchify).split("\n")[-1] == (
        '    return rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (c ph pw)", ph=ph, pw=pw)'
    )
    assert "raise" not in lines_of(patchify) and '"""' not in lines_of(patchify)
    assert lines_of(json.loads).startswith("def loads(") and "isinstance" in lines_of(json.loads)
    found = substitutions()
    page = (MODULES.parent.parent / "live.md").read_text(encoding="utf-8")
    assert set(re.findall(r"{{ (\w+) }}", page)) == set(found)


@needs_node
def test_the_catalogue_has_words_for_each_experiment():
    code = f"""
    import {{ EN }} from "{MODULES}/text/en.mjs";
    import {{ REPAIRS, SHUFFLES }} from "{MODULES}/experiments.mjs";
    const percents = [0.5, 0.9929, 0.99999, 1].map(EN.percent);
    console.log(JSON.stringify([EN.experiments, [...SHUFFLES, ...REPAIRS], percents]))"""
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words, shown, percents = json.loads(done.stdout)
    assert set(words) == set(shown) == {*INTERVENTIONS, "shuffleBag"} and len(shown) == len(INTERVENTIONS) + 1
    assert all(set(text) == {"title", "what", "why"} for text in words.values())
    assert percents == ["50 %", "99.3 %", "99.9 %", "100 %"]


def test_the_book_gets_the_models_with_what_was_measured(tmp_path):
    (tmp_path / "live").mkdir()
    write_files(tmp_path)
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["runs"]
    for run in ("mnist", "mnist-patch4"):
        text = (tmp_path / "live" / f"{run}.js").read_text(encoding="utf-8")
        assert json.loads(text.partition(" = ")[2].rstrip().rstrip(";"))["measured"] == rows[run]
    drawing = BeautifulSoup((tmp_path / "live/still.svg").read_text(encoding="utf-8"), "html.parser")
    assert f"FIRST = {list(FIRST)};" in (MODULES / "page.mjs").read_text(encoding="utf-8")
    bars = [float(re.search(r"h([\d.]+)v12", path["d"])[1]) for path in drawing.select("path[d$='H482z']")]
    assert bars.index(max(bars)) == FIRST[0] and len(bars) == 10
    edges = [path for path in drawing.select("path") if path["fill"] == "none"]
    assert len(edges) == 1 + 4 * 4 and len(drawing.select("path")) == 2 * 28 * 28 + 10 + len(edges)
