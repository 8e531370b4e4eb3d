"""The reading list is complete: every entry is shown in a group, says why to read it, and can be found."""

import re
from pathlib import Path

BOOK = Path(__file__).parent.parent / "book"
BIB = (BOOK / "references.bib").read_text(encoding="utf-8")
ENTRIES = {
    key: dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, flags=re.MULTILINE))
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}$", BIB, flags=re.MULTILINE | re.DOTALL)
}


def test_every_entry_is_read_and_named_once():
    keys = re.findall(r"^@\w+\{(\w+),$", BIB, flags=re.MULTILINE)
    assert len(keys) >= 50 and sorted(keys) == sorted(ENTRIES)
    for key, entry in ENTRIES.items():
        assert {"title", "author", "year", "keywords", "note"} <= set(entry), key
        assert entry["year"] in key or "label" in entry, key


def test_every_group_is_shown_and_every_entry_is_in_one():
    shown = re.findall(r':filter: keywords == "(\w+)"', (BOOK / "references.md").read_text(encoding="utf-8"))
    assert len(shown) == len(set(shown))
    assert {entry["keywords"] for entry in ENTRIES.values()} == set(shown)


def test_every_entry_can_be_found():
    for key, entry in ENTRIES.items():
        assert {"eprint", "doi", "url"} & set(entry), key
        if "eprint" in entry:
            assert re.fullmatch(r"\d{4}\.\d{4,5}", entry["eprint"]) and entry["archiveprefix"] == "arXiv", key
            posted = 2000 + int(entry["eprint"][:2])
            assert -1 <= int(entry["year"]) - posted <= 2, f"{key}: posted in {posted}, dated {entry['year']}"


def test_every_citation_has_an_entry():
    for page in BOOK.glob("*.md"):
        for keys in re.findall(r"\{cite(?::\w)?\}`([^`]+)`", page.read_text(encoding="utf-8")):
            assert set(keys.split(",")) <= set(ENTRIES), (page.name, keys)
