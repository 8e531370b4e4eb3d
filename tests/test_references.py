"""The reading list is complete: every entry is in a group that is shown, says why to read it, and can be found."""

import re

from notebook_rules import ROOT, page
from pybtex.database import parse_file


def test_every_entry_is_shown_and_can_be_found():
    shown = re.findall(r':filter: keywords == "(\w+)"', page("book/references.md"))
    entries = {key: entry.fields for key, entry in parse_file(str(ROOT / "book/references.bib")).entries.items()}
    assert len(entries) >= 50 and {fields["keywords"] for fields in entries.values()} == set(shown)
    for key, fields in entries.items():
        assert {"title", "year", "note"} <= set(fields) and {"eprint", "doi", "url"} & set(fields), key
        if "eprint" in fields:  # of arXiv
            posted = 2000 + int(re.fullmatch(r"(\d\d)\d\d\.\d{4,5}", fields["eprint"])[1])
            assert -1 <= int(fields["year"]) - posted <= 2, f"{key}: posted in {posted}, dated {fields['year']}"
