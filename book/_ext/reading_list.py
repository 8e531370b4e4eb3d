"""A bibliography that no library's style gives: oldest first, and each entry ends with a line on why to read it."""

import copy
from urllib.parse import urlsplit

import pybtex.plugin
from pybtex.richtext import Tag, Text
from pybtex.style.formatting.unsrt import Style as Unsorted
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting import BaseSortingStyle
from pybtex.style.template import field, href


class OldestFirst(BaseSortingStyle):
    def sorting_key(self, entry):
        return entry.fields["year"], entry.key


class NameAndYear(BaseLabelStyle):
    """Labels that say the same as the citations in the text. A field ``label`` wins, where two would be alike."""

    def format_labels(self, sorted_entries):
        for entry in sorted_entries:
            surname = " ".join(entry.persons["author"][0].last_names)
            yield entry.fields.get("label") or f"{surname.strip('{}')} {entry.fields['year']}"


def host(url: str) -> str:
    return urlsplit(url).netloc.removeprefix("www.")


class ReadingList(Unsorted):
    default_sorting_style = OldestFirst
    default_label_style = NameAndYear

    def format_url(self, entry):
        """A link that says whose page it is: nobody wants a whole address read aloud."""
        return href(field("url", raw=True))[field("url", raw=True, apply_func=host)]

    def format_entry(self, label, entry, bib_data=None):
        entry = copy.deepcopy(entry)
        note = entry.fields.pop("note")
        formatted = super().format_entry(label, entry, bib_data)
        formatted.text = Text(formatted.text, " ", Tag("em", note))
        return formatted


def setup(app):
    pybtex.plugin.register_plugin("pybtex.style.formatting", "reading_list", ReadingList)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
