"""A class's report in a real browser: it fits a phone and a long name, and its columns sort."""

import browser
import pdf
import pytest
from playwright.sync_api import sync_playwright

from vit_tutorial.classroom.grading import Grade
from vit_tutorial.classroom.reports import write_reports

LONG = "A" * 150 + "@students.example.org"
POINTS = {"Ada": 10.5, LONG: 9, "Max": 0, "Eve": 2.25}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A browser, the class's page and a student's."""
    if not (path := pdf.installed()):
        pytest.skip("no Chromium or Chrome on the PATH")
    grades = []
    for student, points in POINTS.items():
        hint, source = "it's " + "very_" * 40 + "wrong", f"def f(x):\n    return x  # {LONG}"
        grades.append(Grade(student, "attention_weights", points, "right", "", 0.1, source, f"{student}/1.py", 12))
        grades.append(Grade(student, "rows_are_independent", 0, "broken", hint, 0.1, source, f"{student}/1.py", 1))
        grades.append(Grade(student, "num_patches", 0, "not attempted", "", 0.1, "", "", 1))
    class_page = write_reports(tmp_path_factory.mktemp("report"), grades)
    (student_page,) = class_page.parent.glob("students/002-*.html")
    with sync_playwright() as playwright:
        opened = browser.launch(playwright, path)
        yield opened, [class_page, student_page]
        opened.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_off_or_pushed_off_the_page(pages, width):
    opened, files = pages
    page = opened.new_page(viewport={"width": width, "height": 800})
    for file in files:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cells = page.locator("td")
        assert cells.count() > 8
        for cell in cells.all():
            box = cell.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, cell.inner_text()
    page.close()


def test_columns_sort_by_number_and_by_name_and_back(pages):
    opened, (file, _) = pages
    page = opened.new_page(viewport={"width": 1280, "height": 800})
    page.goto(file.as_uri())
    table = page.locator("table", has=page.get_by_role("columnheader", name="points"))

    def students() -> list[str]:
        return table.locator("td:first-child").all_inner_texts()

    assert students() == list(POINTS)
    table.get_by_role("button", name="points").click()
    assert students() == ["Max", "Eve", LONG, "Ada"]
    table.get_by_role("button", name="points").click()
    assert students() == ["Ada", LONG, "Eve", "Max"]
    table.get_by_role("button", name="student").click()
    assert students() == [LONG, "Ada", "Eve", "Max"]
    sorted_by = table.locator("th").evaluate_all("heads => heads.map((head) => head.getAttribute('aria-sort'))")
    assert sorted_by == ["ascending", None, None]
    page.close()
