"""The lab notebook shows every recorded change, and what its words claim."""

import re

from _ext.lab_notebook import CHANGES, PUBLISHED, Lab
from notebook_rules import page


def test_every_recorded_change_is_in_a_table():
    named = " ".join(re.findall(r"lab\.compare\((.*)\)", page("book/lab_notebook.md"))).replace('"', " ").split()
    assert {*named} >= {name for changes in CHANGES.values() for name in changes}


def test_every_choice_of_a_tutorial_was_made_by_one():
    made = re.findall(r"<tr><th[^>]*>[^<]+</th><td[^>]*>([^<]*)</td>", Lab().choices())
    assert len(made) == 14 and all(letters and {*letters.split()} <= {*PUBLISHED} for letters in made)


def test_shapes_do_not_vary_equally():
    (p,) = re.findall(r">shapes</th><td[^>]*>test</td><td[^>]*>\d+</td><td[^>]*>([^<]*)<", Lab().variances())
    assert float(p.removeprefix("&lt; ")) < 0.05
