"""Classes from a table: by its columns, named or guessed and told, and never by a guess that isn't told."""

import os
import warnings
from collections import Counter
from pathlib import Path

import pytest
from fake_data import write_image

from vit_tutorial.data import load_dataset, tables
from vit_tutorial.data.folders import split_folder
from vit_tutorial.data.tables import read_labels

pytestmark = pytest.mark.filterwarnings("ignore:.*images of . classes")


@pytest.fixture
def photos(tmp_path):
    """Six pictures in two folders."""
    for number in range(6):
        write_image(tmp_path / f"set/images/{number % 2}/{number:03}.png", number)
    return tmp_path / "set"


def labels_of(path, table: str, columns: str = "", encoding: str = "utf-8") -> dict[str, str]:
    (path / "table.csv").write_text(table, encoding=encoding)
    files, labels, classes, _ = read_labels(path, path / "table.csv", columns)
    return {Path(file).stem: classes[label] for file, label in zip(files, labels.tolist(), strict=True)}


EXPECTED = {"000": "cat", "001": "dog", "002": "cat"}
TABLES = {
    "names": "file,label\n000.png,cat\n001.png,dog\n002.png,cat\n",
    "without extension": "id,breed\n000,cat\n001,dog\n002,cat\n",
    "with some folders": "path,species\n0/000.png,cat\n./1/001.png,dog\nimages/0/002.png,cat\n",
    "with other folders": "path,class\n/home/me/images/0/000.png,cat\nx\\1\\001.png,dog\n../002.png,cat\n",
    "the class first": "Category,image\ncat,000.png\ndog,001.png\ncat,002.png\n",
    "semicolons": "file;label\n000.png;cat\n001.png;dog\n002.png;cat\n",
    "tabs": "file\tlabel\n000.png\tcat\n001.png\tdog\n002.png\tcat\n",
    "blanks": "0/000.png  cat\n1/001.png \tdog \n0/002.png   cat\n",
    "blanks and a header": "file label\n0/000.png cat\n1/001.png dog\n0/002.png cat\n",
    "quotes and spaces": '"file", label\n"000.png", cat\n"001.png" ,dog\n002.png, cat \n\n',
    "columns called by numbers": "0,1\n0/000.png,cat\n1/001.png,dog\n0/002.png,cat\n",
    "no header": "000.png,cat\n001.png,dog\n002.png,cat\n",
    "an index and more": ",image_id,age,Class Name\n0,000.png,3,cat\n1,001.png,5,dog\n2,002.png,3,cat\n",
    "one other column": "photo,what is on it\n000.png,cat\n001.png,dog\n002.png,cat\n",
    "a class like a file's name": "label,file\ncat,000.png\ndog,001.png\ncat,002.png\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_are_guessed(photos, name):
    assert labels_of(photos, TABLES[name]) == EXPECTED


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_as_spreadsheets_write_it(photos, encoding):
    table = "file,label\r\n000.png,Kätzchen\r\n001.png,犬\r\n"
    assert labels_of(photos, table, encoding=encoding) == {"000": "Kätzchen", "001": "犬"}


def test_as_spreadsheets_on_windows_write_it(photos):
    with pytest.warns(UserWarning, match=r"table\.csv is not in UTF-8, so it is read as Windows-1252; if letters with"):
        found = labels_of(photos, "file;label\n000.png;Kätzchen\n001.png;–\n", encoding="cp1252")
    assert found == {"000": "Kätzchen", "001": "–"}


def test_the_guess_is_told_with_what_is_left_out(photos):
    message = (
        r"files from column 'f', classes from column 'label'; 2 images of 2 classes; left out: 3 images without a row, "
        r"2 rows without an image in \S+, such as '9\.png', 1 row without a class$"
    )
    with pytest.warns(UserWarning, match=message):
        labels_of(photos, "f,label\n000.png,a\n001.png,b\n002.png,\n9.png,a\n8.png,b\n")


def test_one_row_that_contradicts_another_stops_no_other(photos):
    table = "f,label\n000.png,a\n001.png,b\n001,a\n002.png,b\n001.png,b\n"
    message = r"2 images of 2 classes; left out: 3 images without a row, 1 image in two classes, such as '001' in 'b' "
    with pytest.warns(UserWarning, match=message):
        assert labels_of(photos, table) == {"000": "a", "002": "b"}


def test_names_in_another_case_or_composed_otherwise(photos):
    """As they come from Windows and from a Mac."""
    write_image(photos / "images/0/IMG_7.JPG", 7)
    write_image(photos / "images/0/ka\u0308tzchen.png", 8)
    table = "file,label\nimg_7.jpg,a\nk\u00e4tzchen.png,b\nImages/0/000.PNG,b\n"
    assert labels_of(photos, table) == {"IMG_7": "a", "ka\u0308tzchen": "b", "000": "b"}
    write_image(photos / "more/img_7.jpg", 9)  # now each has its own name
    assert labels_of(photos, "file,label\nimg_7.jpg,a\nIMG_7.JPG,b\n") == {"img_7": "a", "IMG_7": "b"}


def test_named_columns(photos):
    table = "file,label,class\n000.png,1,cat\n001.png,2,dog\n002.png,1,cat\n"
    assert labels_of(photos, table, "file,class") == labels_of(photos, table, " 1 , 3 ") == EXPECTED
    assert labels_of(photos, table, "file,label") == {"000": "1", "001": "2", "002": "1"}


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("file,label,class\n000.png,1,cat\n", "", r"which column has the classes\? Name both with --label-columns, as"),
        ("day,file,sex\n1,000.png,f\n1,001.png,m\n", "", r"has the classes\? Name both with \S+, as in file,sex; it"),
        ("sex,file,day\nf,000.png,1\nm,001.png,\n", "", r"as in file,sex; .* columns sex \(f, m\), .* day \(1\)$"),
        ("id,file,in\n" + "".join(f"{40**9 + n},00{n}.png,\n" for n in range(6)), "", r"id \(6 values\), .*, in \(\)$"),
        ("a.png 0.5 one\n000.png 1.0 one\n001.png 2.0 one\n", "", r"has the classes\? .* as in a.png,0.5; it has"),
        ("image,mask,label\n000.png,001.png,a\n", "", "which column has the files"),
        ("file,label\nx.png,a\n", "", r"no column names images in \S+set, with \[\['x\.png', 'a'\]\] as its first"),
        ("file,label\n000.png,a\n", "file,what", r"has no column 'what', only file, label$"),
        ("file,label\n000.png,a\n", "file", r"the columns of labels must be two names, as in file,class; got 'file'"),
        ("file,label\n000.png,a\n", "label,file", r"column 'label' names no image in"),
        ("file,label\n000.png,a\n0/000.png,b\n", "", r"is in two classes, such as '0/000\.png' in 'a' and 'b'$"),
        ("file,label\nmy photo 1.png,a\n", "", r"no column names images .*, with \[\['my photo 1\.png', 'a'\]\]"),
        ("file\n000.png\n", "", r"needs a column with files and one with classes; its first row is \['file'\]"),
        ("file,label\n", "", r"no column names images in \S+set, with \[\] as its first row$"),
        ("file,label\n", "file,label", r"column 'file' names no image in \S+set, with \[\] as its first row$"),
        ("", "", r"needs a column with files and one with classes; it is empty"),
    ],
)  # fmt: skip
def test_what_can_t_be_told_is_asked(photos, table, columns, message):
    with pytest.raises(ValueError, match=message):
        labels_of(photos, table, columns)


def test_a_name_that_two_images_have(photos):
    write_image(photos / "more/000.png", 9)
    with pytest.raises(ValueError, match=r"'000\.png' may be images/0/000\.png and more/000\.png; name its folder"):
        labels_of(photos, "file,label\n000.png,a\n001.png,b\n")
    assert labels_of(photos, "file,label\nmore/000.png,a\n001.png,b\n") == {"000": "a", "001": "b"}


def test_files_that_are_no_table(photos, monkeypatch):
    (photos / "a.xlsx").write_bytes(b"PK\x03\x04...")
    with pytest.raises(ValueError, match=r"a\.xlsx is a spreadsheet or a zip file: save the table as CSV"):
        read_labels(photos, photos / "a.xlsx")
    (photos / "a.csv").write_bytes("file,label\n000.png,カレー\n".encode("shift-jis"))
    with pytest.raises(ValueError, match=r"a\.csv is not in UTF-8: save it as CSV in UTF-8"):
        read_labels(photos, photos / "a.csv")
    os.mkfifo(photos / "pipe.csv")
    for name in ("nowhere.csv", "pipe.csv", "images"):
        with pytest.raises(FileNotFoundError, match=rf"^there is no file \S+set.{name}$"):
            read_labels(photos, photos / name)
    monkeypatch.setattr(tables, "MOST_BYTES", 30)
    (photos / "a.csv").write_text("file,label\n000.png,a\n001.png,b\n")
    with pytest.raises(ValueError, match=r"a\.csv has more than the 30 bytes that are read: name one of these images"):
        read_labels(photos, photos / "a.csv")


def test_numbers_are_sorted_by_their_value(photos):
    (photos / "t.csv").write_text("file,label\n000,10\n001,9\n002,-1\n003,x\n")
    assert read_labels(photos, photos / "t.csv")[2] == ("-1", "9", "10", "x")


@pytest.fixture
def many(tmp_path):
    rows = ["file,label"]
    for number in range(60):
        write_image(tmp_path / f"set/images/{number}.png", 3 * number)
        rows.append(f"{number}.png,{'ape' if number % 3 else 'bee'}")
    (tmp_path / "set/labels.csv").write_text("\n".join(rows))
    return tmp_path / "set", tmp_path / "set/labels.csv"


def test_a_set_with_a_table_is_split_and_read(many, tmp_path):
    folder, table = many
    parts = [
        load_dataset(f"folder:{folder}", split, root=tmp_path, labels=str(table)) for split in ("train", "val", "test")
    ]
    values = [part.images[:, 0, 0, 0] // 3 for part in parts]
    assert sorted(value for row in values for value in row.tolist()) == list(range(60))
    for part, row in zip(parts, values, strict=True):
        assert part.classes == ("ape", "bee") and part.variant == "folder set, classes from labels.csv (file, label)"
        assert part.labels.tolist() == (row % 3 == 0).long().tolist()


def test_folders_by_splits_names_are_splits_with_a_table_too(tmp_path):
    rows = ["file,label"]
    for split, count in (("Train", 20), ("Test", 6)):
        for number in range(count):
            write_image(tmp_path / f"set/{split}/{number}.png", number + 100 * (split == "Test"))
            rows.append(f"{split}/{number}.png,{'ab'[number % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    parts = split_folder(tmp_path / "set", str(tmp_path / "t.csv"))
    assert Counter({name: len(part) for name, part in parts.items()}) == {"test": 6} | {
        name: len(parts[name]) for name in ("train", "val")
    }
    assert len(parts["train"]) + len(parts["val"]) == 20


def test_a_table_of_a_single_class_and_labels_where_they_mean_nothing(many, tmp_path):
    folder, table = many
    table.write_text(table.read_text().replace("bee", "ape"))
    with pytest.raises(ValueError, match=r"has a single class, 'ape', .* make a folder for each$"):
        load_dataset(f"folder:{folder}", root=tmp_path, labels=str(table))
    with pytest.raises(ValueError, match=r"labels are for a folder:PATH; 'digits' has its own, got 't\.csv'"):
        load_dataset("digits", labels="t.csv")
    with pytest.raises(ValueError, match=r"label_columns 'a,b' are columns of a table: name that in labels"):
        load_dataset(f"folder:{folder}", label_columns="a,b")


def test_a_table_s_classes_are_read_anew_each_time(many, tmp_path):
    """The pixels are kept; the labels must not be."""
    folder, table = many
    before = load_dataset(f"folder:{folder}", root=tmp_path, labels=str(table))
    table.write_text(table.read_text().replace("ape", "x").replace("bee", "ape"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = load_dataset(f"folder:{folder}", root=tmp_path, labels=str(table))
    assert after.classes == ("ape", "x") and len(after) == len(before)
    number = dict(zip(before.images[:, 0, 0, 0].tolist(), before.labels.tolist(), strict=True))
    for value, label in zip(after.images[:, 0, 0, 0].tolist(), after.labels.tolist(), strict=True):
        if value in number:
            assert label == 1 - number[value]
