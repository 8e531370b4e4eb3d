"""What a page from disk may run: modules as one script inside it."""

import re
import shutil
import subprocess

import pytest
from _ext.live import MODULES, bundle, enliven
from bs4 import BeautifulSoup

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
TWICE = """import { TWO } from "./numbers.mjs";
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
    assert script.count("</script") == 1 and "<!--" not in script


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"a": 'import { x } from "./b.mjs";\n', "b": "const x = 1;\n"}, "b.mjs does not export x"),
        ({"a": 'import { x } from "./b.mjs";\n', "b": 'import { y } from "./a.mjs";\n'}, "a.mjs imports itself"),
        ({"a": 'import * as b from "./b.mjs";\n', "b": ""}, r"a.mjs: 'import \* as b"),
        ({"a": "export default 1;\n"}, "a.mjs: 'export default"),
        ({"a": "export let x = 1;\n"}, "a.mjs: 'export let"),
        ({"a": 'import { x } from "three";\n'}, "a.mjs: 'import"),
    ],
)
def test_what_cannot_be_put_together_is_refused(sources, message, written):
    with pytest.raises(ValueError, match=message):
        bundle(written(**sources))


@needs_node
@pytest.mark.parametrize("path", sorted(MODULES.glob("*.mjs")), ids=lambda path: path.stem)
def test_each_module_of_the_book_can_be_put_into_a_page(path):
    code = BeautifulSoup(bundle(path), "html.parser").script.string
    found = subprocess.run(["node", "--input-type=module", "--check"], input=code, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_a_page_gets_each_script_that_it_asks_for_once_and_unchanged():
    asks = '<p data-live="vit"></p><p data-live="digit"></p><p data-live="vit"></p>'
    page = BeautifulSoup(f"<body><article>{asks}</article></body>", "html.parser")
    enliven(page)
    assert re.findall(r'<script type="module">.*?</script>', str(page), re.DOTALL) == [
        bundle(MODULES / "vit.mjs"),
        bundle(MODULES / "digit.mjs"),
    ]
    assert page.body.contents[-1].name == "script"
