"""Tables: HTML in a notebook, aligned text in a terminal."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import Any

from vit_tutorial.validate import check_fields, checked


@dataclass(frozen=True)
class Table:
    """What :func:`table` returns; notebooks show it by themselves."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            out = []
            for i, (text, right) in enumerate(zip(row, self.right, strict=True)):
                kind = "th" if tag == "th" or i == 0 else "td"
                scope = f' scope="{"col" if tag == "th" else "row"}"' * (kind == "th")
                out.append(f'<{kind}{scope} style="text-align:{"right" if right else "left"}">{_html(text)}</{kind}>')
            return f"<tr>{''.join(out)}</tr>"

        body = "".join(cells(row, "td") for row in self.rows)
        return (
            f'<table class="vit-table"><caption>{_html(self.caption)}</caption>'
            f"<thead>{cells(self.header, 'th')}</thead><tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [self.caption]
        for row in (self.header, *self.rows):
            sized = zip(row, widths, self.right, strict=True)
            lines.append("  ".join(text.rjust(w) if right else text.ljust(w) for text, w, right in sized).rstrip())
        return "\n".join(lines)


def _html(text: str) -> str:
    """Text as HTML, with the apostrophes that the book's other text has."""
    return escape(text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}"))


@checked
def table(caption: str, columns: dict[str, Sequence[Any]], formats: dict[str, str] | None = None) -> Table:
    """A table from its columns; the first one names the rows.

    Args:
        caption: a sentence that says what to see.
        columns: values by header, all of one length. Numbers are aligned right, words left, None is left empty.
        formats: format specifications by header, such as ``".1%"``; otherwise whole numbers get thousands separators
            and others three significant digits.

    Raises:
        ValueError: if there is no column, the columns differ in length, or a format belongs to no column.
    """
    formats = formats or {}
    lengths = {name: len(values) if isinstance(values, Sized) else None for name, values in columns.items()}
    if len(set(lengths.values()) - {None}) != 1 or None in lengths.values():
        raise ValueError(f"columns must be one or more, all of one length, got {lengths}")
    if unknown := formats.keys() - columns.keys():
        raise ValueError(f"formats {sorted(unknown)} belong to no column; there are {list(columns)}")
    check_fields("formats", formats, dict.fromkeys(formats, str))

    def number(value: Any) -> bool:
        return isinstance(value, Real) and not isinstance(value, bool)

    def text(value: Any, spec: str | None) -> str:
        if value is None:
            return ""
        if spec is None:
            spec = ("," if float(value).is_integer() else ",.3g") if number(value) else ""
        shown = format(value, spec)
        return shown.replace("-", "−").replace("%", "\N{NO-BREAK SPACE}%") if number(value) else shown

    shown = [[text(value, formats.get(name)) for value in values] for name, values in columns.items()]
    right = [all(number(v) or v is None for v in values) and any(map(number, values)) for values in columns.values()]
    return Table(caption, tuple(columns), tuple(zip(*shown, strict=True)), tuple(right))
