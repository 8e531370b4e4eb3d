"""Classes from a table: a CSV file with a row for each image, its file and its class (chapter 6)."""

import csv
import io
import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from vit_tutorial.data.layout import images_in

MOST_BYTES = 2**28  # of a table, millions of rows
CLASS_COLUMNS = {  # what a column with the classes is called, without case and punctuation
    *("label", "labels", "class", "classes", "classname", "classlabel", "labelname", "category", "categoryname"),
    *("target", "y", "diagnosis", "dx", "species", "breed"),
}


def read_labels(
    path: Path, table: Path, columns: str = ""
) -> tuple[tuple[str, ...], Int64[Tensor, " num"], tuple[str, ...], str]:
    """The images below a folder whose classes a table tells.

    A file may be named with or without folders and extension, and in another case where no other file has that name.
    What was found, and how, is told in a warning.

    Args:
        path: the folder.
        table: a CSV file, with or without a header, with commas, semicolons, tabs, or nothing but blanks in between.
        columns: the names of the columns with files and classes, ``"file,label"``, or their numbers, ``"1,3"``. If
            none are given, the files' column is the one that names most images, and the classes' the one called
            ``label``, ``class``, ``category`` or alike, or the only other one.

    Returns:
        paths, class indices, the classes' names, and the table and its columns, in words.

    Raises:
        FileNotFoundError: if there is no such table.
        ValueError: if it is no CSV file, names no image, or it can't be told which image it means, or in which column
            the classes are.
    """
    header, rows = _read(table)
    index = _index(path)
    if _names_an_image(header, rows, index):  # there is no header
        header, rows = [str(number + 1) for number in range(len(header))], [header, *rows]
    file_column, class_column = (
        _chosen(table, header, columns) if columns else _guessed(path, table, header, rows, index)
    )
    names: dict[str, str] = {}
    absent, empty, torn = [], 0, {}
    for row in rows:
        cell, name = (row[column].strip() if column < len(row) else "" for column in (file_column, class_column))
        found = _files(cell, index)
        if len(found) > 1:
            places = " and ".join(os.path.relpath(file, path) for file in found[:2])
            raise ValueError(
                f"{table}: {cell!r} may be {places}; name its folder in the table, too, or take one folder alone"
            )
        if not found:
            absent.append(cell)
        elif not name:
            empty += 1
        elif names.setdefault(found[0], name) != name:
            torn[found[0]] = f"{cell!r} in {names[found[0]]!r} and {name!r}"
    names = {file: name for file, name in names.items() if file not in torn}
    if torn and not names:
        raise ValueError(f"{table}: each image is in two classes, such as {next(iter(torn.values()))}")
    if not names:
        raise ValueError(
            f"{table}: column {header[file_column]!r} names no image in {path}, with {rows[:1]} as its first row"
        )
    classes = tuple(sorted(set(names.values()), key=_natural))
    said = f"files from column {header[file_column]!r}, classes from column {header[class_column]!r}"
    all_files = {file for there in index.values() for file in there}
    rest = (
        (len(all_files) - len(names) - len(torn) - empty, "image", "without a row"),
        (len(torn), "image", f"in two classes, such as {next(iter(torn.values()), '')}"),
        (len(absent), "row", f"without an image in {path}, such as {''.join(absent[:1])!r}"),
        (empty, "row", "without a class"),
    )
    left = ", ".join(f"{count:,} {what}{'s' * (count > 1)} {which}" for count, what, which in rest if count)
    told = f"{table}: {said}; {len(names):,} images of {len(classes)} classes"
    warnings.warn(told + f"; left out: {left}" * bool(left), stacklevel=2)
    files = tuple(sorted(names))
    labels = torch.tensor([classes.index(names[file]) for file in files])
    return files, labels, classes, f"{table.name} ({header[file_column]}, {header[class_column]})"


def _read(table: Path) -> tuple[list[str], list[list[str]]]:
    """The first row, and the others."""
    text = _text(table)
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    if delimiter not in first:
        text, delimiter = re.sub(r"[ \t]+", "\t", text), "\t"
    try:
        rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(map(str.strip, row))
        ]
    except csv.Error as error:
        raise ValueError(f"{table} is no CSV file: {error}") from error
    if not rows or len(rows[0]) < 2:
        found = f"its first row is {rows[0]}" if rows else "it is empty"
        raise ValueError(f"{table} needs a column with files and one with classes; {found}")
    return [cell.strip() for cell in rows[0]], rows[1:]


def _text(table: Path) -> str:
    """In UTF-8, UTF-16, or else in Windows-1252, as a warning says."""
    if not table.is_file():  # opening a pipe would wait for somebody to write
        raise FileNotFoundError(f"there is no file {table}")
    with table.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if content.startswith(b"PK\x03\x04"):
        raise ValueError(f"{table} is a spreadsheet or a zip file: save the table as CSV")
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"{table} has more than the {MOST_BYTES:,} bytes that are read: name one of these images alone"
        )
    try:
        return content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        try:
            text = content.decode("cp1252")
        except UnicodeDecodeError:
            raise ValueError(f"{table} is not in UTF-8: save it as CSV in UTF-8") from error
    said = "is not in UTF-8, so it is read as Windows-1252"
    warnings.warn(f"{table} {said}; if letters with accents come out wrong, save it in UTF-8", stacklevel=2)
    return text


def _names_an_image(header: Sequence[str], rows: Sequence[Sequence[str]], index: dict[str, list[str]]) -> bool:
    """Whether the first row is of an image, in the same way as the second."""
    below = rows[0] if rows else header
    pairs = zip(header, below, strict=False)
    return any(_files(cell, index) and Path(cell).suffix == Path(other).suffix for cell, other in pairs)


def _index(path: Path) -> dict[str, list[str]]:
    """The images by what may name them: the ends of their paths, with and without extension, and in lower case.

    Lower case names only what has no such name of its own.
    """
    index: dict[str, list[str]] = {}
    lower: dict[str, list[str]] = {}
    for file in images_in(path):
        parts = _composed(Path(file).relative_to(path).as_posix()).split("/")
        for start in range(len(parts)):
            name = "/".join(parts[start:])
            for key in (name, os.path.splitext(name)[0]):
                index.setdefault(key, []).append(file)
                lower.setdefault(key.lower(), []).append(file)
    return lower | index


def _composed(name: str) -> str:
    """With ä as one letter: a Mac's zips have two."""
    return unicodedata.normalize("NFC", name)


def _files(cell: str, index: dict[str, list[str]]) -> list[str]:
    """The images that a cell may mean, by as much of its path as is known here."""
    parts = re.sub(r"^(\./)+", "", _composed(cell.strip()).replace("\\", "/")).split("/")
    names = ["/".join(parts[start:]) for start in range(len(parts))]
    return next((index[name] for name in [*names, *map(str.lower, names)] if name in index), [])


def _chosen(table: Path, header: Sequence[str], columns: str) -> tuple[int, int]:
    wanted = [name.strip() for name in columns.split(",")]
    if len(wanted) != 2:
        raise ValueError(f"the columns of labels must be two names, as in file,class; got {columns!r}")
    known = {str(number + 1): number for number in range(len(header))} | {name: i for i, name in enumerate(header)}
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"{table} has no column {unknown[0]!r}, only {', '.join(header)}")
    return known[wanted[0]], known[wanted[1]]


def _guessed(
    path: Path, table: Path, header: Sequence[str], rows: Sequence[Sequence[str]], index: dict[str, list[str]]
) -> tuple[int, int]:
    values = [sorted({row[i].strip() for row in rows if i < len(row)} - {""}) for i in range(len(header))]

    def named(cells: Sequence[str]) -> tuple[int, int]:
        """How many images the cells name, with their extensions, and in any way."""
        found = {file: cell for cell in cells for file in _files(cell, index)}
        ends = (file.lower().endswith(Path(cell.lower()).suffix) and "." in cell for file, cell in found.items())
        return sum(ends), len(found)

    def ask(file: int, others: Sequence[int]) -> str:
        letters = [any(map(str.isalpha, "".join(found))) for found in values]
        other = min(others, key=lambda i: (len(values[i]) < 2, not letters[i], len(values[i])))
        said = ", ".join(f"{name} ({_in_short(found)})" for name, found in zip(header, values, strict=True))
        return f"Name both with --label-columns, as in {header[file]},{header[other]}; it has the columns {said}"

    scores = [named(cells) for cells in values]
    file_column = scores.index(max(scores))
    if scores[file_column] == (0, 0):
        raise ValueError(f"{table}: no column names images in {path}, with {rows[:1]} as its first row")
    rest = [column for column in range(len(header)) if column != file_column]
    if scores.count(scores[file_column]) > 1:
        raise ValueError(f"{table}: which column has the files? {ask(file_column, rest)}")
    known = [column for column in rest if re.sub(r"[\W_]", "", header[column].lower()) in CLASS_COLUMNS]
    if len(known) != 1 and len(rest) != 1:
        raise ValueError(f"{table}: which column has the classes? {ask(file_column, rest)}")
    return file_column, (known or rest)[0]


def _natural(name: str) -> tuple:
    """Numbers by their value, before other names."""
    return (0, float(name), name) if re.fullmatch(r"-?\d+(\.\d+)?", name) else (1, 0.0, name)


def _in_short(values: Sequence[str]) -> str:
    """A few values, or how many there are."""
    few = ", ".join(values)
    return few if len(few) < 60 else f"{len(values):,} values"
