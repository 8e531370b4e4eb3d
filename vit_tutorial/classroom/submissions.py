"""What students handed in: notebooks, Python files and hand-in files, in a folder or a zip, whatever their names."""

import io
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from vit_tutorial.borders import at_fault
from vit_tutorial.classroom.answers import read_cell
from vit_tutorial.old_names import current_name

FORMAT = "vit-tutorial hand-in"
LARGEST, DEEPEST = 50_000_000, 3  # bytes of a file, zips inside of zips
MOST_BYTES, MOST_FILES = 10 * LARGEST, 2_000  # of all that is in one handed-in zip, and in the zips in it
MOST_CODE, MOST_SECONDS = 500_000, 10.0  # characters in a file's cells; to look for cells in a damaged notebook
READ = {".ipynb", ".py", ".json", ".txt", ""}
OTHER = "this is neither a notebook nor a .py file nor a hand-in file"
STUDENT = re.compile(r"""^STUDENT\s*=\s*(?:(["'])(?P<name>(?:\\.|[^\\\n])*?)\1|(?P<number>\d+))""", re.MULTILINE)
JUNK = re.compile(r"(^|/)(__MACOSX|__pycache__|\.[^/]*)(/|$)")
# Moodle: "Ada Lovelace_4711_assignsubmission_file_"; Canvas: "lovelaceada_LATE_4711_815_".
MOODLE = re.compile(r"^(?P<who>[^/]+?_\d+)_assignsubmission_\w*?(?:file|onlinetext)_?")
CANVAS = re.compile(r"^(?P<who>[^/_]+)_(?:LATE_)?(?P<number>\d+)_\d+_")


@dataclass(frozen=True)
class File:
    """A file that a student handed in.

    Args:
        student: who handed it in, by the platform's name for them, else the folder's, else the file's.
        path: where it was.
        cells: (kind, text) in their order.
        only: the exercise that it answers, in a hand-in file.
        signed: what the student wrote into it as name or number.
        problem: why it can't be read.
        claimed: whether only its signature or its own name says whose it is.
    """

    student: str
    path: str
    cells: tuple[tuple[str, str], ...] = ()
    only: str = ""
    signed: str = ""
    problem: str = ""
    claimed: bool = False


def read_submissions(path: str | Path) -> list[File]:
    """Everything that was handed in, each student's older files before newer ones.

    Raises:
        ValueError: if there is nothing to read.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"there is no {path}; submissions must be a folder or a zip")
    found = sorted(_below(path), key=lambda each: (each[1], each[0]))
    if path.is_file():
        found = _without_common_folder([(name.removeprefix(f"{path.stem}/"), *rest) for name, *rest in found])
    files = [file for name, _, content in found for file in _read(name, content)]
    readable = {file.student for file in files if file.problem != OTHER}
    files = [file for file in files if file.problem != OTHER or file.student not in readable]
    if not files:
        raise ValueError(f"{path} has no notebook, .py file or hand-in file in it")
    return files


def _below(path: Path) -> Iterator[tuple[str, float, bytes | str]]:
    """(path below the submissions, time, content or why it can't be read) of each file."""
    top = path.parent if path.is_file() else path
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        name = file.relative_to(top).as_posix()
        if file.is_file() and not file.is_symlink() and not JUNK.search(name):
            yield from _unpacked(
                name, file.stat().st_mtime, file.stat().st_size, file.read_bytes, of_class=file == path
            )


@dataclass
class _Room:
    """What one student's zip may still unpack, whatever zips are in it."""

    size: int = MOST_BYTES
    files: int = MOST_FILES


def _unpacked(
    name: str,
    when: float,
    size: int,
    read: Callable[[], bytes],
    depth: int = 0,
    room: _Room | None = None,
    of_class: bool = False,
) -> Iterator[tuple[str, float, bytes | str]]:
    """The file itself, or those in the zip that it is; nothing is written to the disk."""
    kind, room = PurePosixPath(name).suffix.lower(), room or _Room()
    zipped = kind == ".zip"
    room.size, room.files = room.size - size * (depth > 0), room.files - (depth > 0)
    if not zipped and kind not in READ:
        yield name, when, OTHER
    elif size > (MOST_BYTES if zipped else LARGEST) or depth > DEEPEST:
        yield name, when, f"larger than {LARGEST / 1e6:.0f} MB, or zipped {DEEPEST} times"
    elif room.size < 0 or room.files < 0:
        yield name, when, f"with it, its zip holds more than {MOST_BYTES / 1e6:.0f} MB or {MOST_FILES:,} files"
    else:
        try:
            with at_fault("broken, or part of a broken zip: ", memory=True):
                content = read()
                archive = zipfile.ZipFile(io.BytesIO(content)) if zipped else None
        except ValueError as error:
            content, archive = str(error), None
        if archive is None:
            yield name, when, content
            return
        for entry in archive.infolist()[: None if of_class else room.files + 1]:
            inner = entry.filename.replace("\\", "/")
            if not entry.is_dir() and not JUNK.search(inner):
                stamp = float("".join(f"{part:02}" for part in entry.date_time))
                inside = f"{name[: -len(kind)]}/{inner}", stamp, entry.file_size, partial(_entry, archive, entry)
                yield from _unpacked(*inside, depth + 1, None if of_class else room)


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """A file of a zip, a little at a time: it might unpack to more than the zip says, and in other ways all at once."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("packed in a way that isn't read here; an ordinary zip is")
    with archive.open(entry) as file:
        return b"".join(iter(partial(file.read, 4096), b""))


def _without_common_folder(found: list) -> list:
    """Remove the folder that holds all files of a zip, as long as it holds only folders."""
    while found and all(name.count("/") > 1 for name, *_ in found) and len({n.split("/")[0] for n, *_ in found}) == 1:
        found = [(name.split("/", 1)[1], *rest) for name, *rest in found]
    return found


def _read(name: str, content: bytes | str) -> list[File]:
    whose = MOODLE.match(name) or CANVAS.match(name)
    folder, _, rest = name.partition("/")
    if whose:
        student = whose["who"] + (f"_{whose['number']}" if "number" in whose.groupdict() else "")
    else:
        student = folder if rest else ""
    try:
        if isinstance(content, str):
            raise ValueError(content)
        with at_fault("", memory=True):  # the others are still to come
            cells, answers, signed = _contents(_decoded(content), PurePosixPath(name).suffix.lower())
        if (most := sum(len(text) for _, text in cells) + sum(map(len, answers.values()))) > MOST_CODE:
            raise ValueError(f"{most:,} characters of code and text, and no more than {MOST_CODE:,} are read")
    except ValueError as error:
        if str(error) == OTHER and not student:
            return []  # a list of names, a photo: nobody's
        return [File(student or PurePosixPath(name).stem, name, problem=str(error), claimed=not student)]
    whose = {"student": student or signed or PurePosixPath(name).stem, "signed": signed, "claimed": not student}
    if answers:
        return [File(path=name, cells=(("code", source),), only=only, **whose) for only, source in answers.items()]
    return [File(path=name, cells=tuple(cells), **whose)]


def _decoded(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def _contents(text: str, suffix: str) -> tuple[list[tuple[str, str]], dict[str, str], str]:
    """Cells, answers of a hand-in file by exercise, and the signature.

    Raises:
        ValueError: if it is none of the three.
    """
    if suffix == ".py" or not text.lstrip().startswith("{"):
        if suffix == ".ipynb":
            raise ValueError("this notebook isn't JSON")
        if suffix != ".py" and not re.search(r"^\s*def ", text, re.MULTILINE):
            raise ValueError(OTHER)
        cells = [("code", text)]
        return cells, {}, _signature(cells)
    try:
        with at_fault(""):
            loaded = json.loads(text)
    except ValueError:
        if cells := _salvaged(text):
            return cells, {}, _signature(cells)
        raise ValueError("broken JSON, with no cell left to read") from None
    if str(loaded.get("format", "")).startswith(FORMAT):
        answers = loaded.get("answers")
        given = {
            current_name(str(name)): answer["source"]
            for name, answer in (answers.items() if isinstance(answers, dict) else ())
            if isinstance(answer, dict) and isinstance(answer.get("source"), str)
        }
        if not given:
            raise ValueError("a hand-in file without answers")
        return [], given, str(loaded.get("student", ""))
    sheets = loaded.get("worksheets")  # where notebooks had their cells before nbformat 4
    first = sheets[0] if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict) else {}
    listed = loaded.get("cells", first.get("cells"))
    if not isinstance(listed, list):
        raise ValueError(OTHER if suffix == ".json" else "this notebook has no cells")
    cells = [read_cell(cell) for cell in listed if isinstance(cell, dict)]
    return cells, {}, _signature(cells)


def _salvaged(text: str) -> list[tuple[str, str]]:
    """The cells of a truncated or damaged notebook, as far as they can be read."""
    cells, kind, decoder, end = [], "code", json.JSONDecoder(), time.monotonic() + MOST_SECONDS
    for match in re.finditer(r'"cell_type"\s*:\s*"(\w+)"|"source"\s*:\s*(?=[\["])', text):
        if match[1]:
            kind = match[1]
            continue
        if time.monotonic() > end:
            break
        with suppress(ValueError), at_fault(""):
            cells.append(read_cell({"cell_type": kind, "source": decoder.raw_decode(text, match.end())[0]}))
    return cells


def _signature(cells: list[tuple[str, str]]) -> str:
    """What ``STUDENT = "…"`` in a hand-out's second cell says."""
    found = next((match for _, text in cells if (match := STUDENT.search(text))), None)
    return (found["name"] or found["number"] or "").strip() if found else ""
