"""Defaults in signatures by their names: autodoc shows ``<function last_epoch>``, and no library mends that."""

import re
from dataclasses import MISSING, fields, is_dataclass


def named(signature: str, thing) -> str:
    """The signature of ``thing``, in which a function or class that is a default stands as code would have it.

    A dataclass says ``<factory>`` of what is made anew for each object: the call that makes it is shown. A function
    without a name becomes an ellipsis.
    """
    for field in fields(thing) if is_dataclass(thing) else ():
        if field.default_factory is not MISSING:
            call = rf"\g<1>{field.default_factory.__name__}()"
            signature = re.sub(rf"(\b{field.name}: [^=]*= )<factory>", call, signature)
    signature = re.sub(r"<function [\w.]*<lambda>>", "...", signature)
    return re.sub(r"<(?:function (?:\w+\.)*(\w+)|class '(?:\w+\.)*(\w+)')>", r"\1\2", signature)


def setup(app):
    app.connect(
        "autodoc-process-signature",
        lambda app, kind, name, thing, options, signature, returns: (signature and named(signature, thing), returns),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
