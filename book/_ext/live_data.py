"""What the live figures of the chapters show, computed when the book is built: one function for each."""

import math


def attention() -> dict:
    """Chapter 3's three tokens: rows of queries and keys, and their values in the plane."""
    return {
        "names": ["roof", "tree", "sky"],
        "features": ["roof-like", "tree-like", "sky-like", "any patch"],
        "queries": [[2, 0, 0, 2], [0, 0, 2, 0], [0, 0, 0, 2]],
        "keys": [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]],
        "values": [[12, 0], [0, 12], [0, 0]],
        "base": math.log(2),  # with a pencil, powers of 2
    }
