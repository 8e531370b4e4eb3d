"""Pages that ask no other host: MathJax and the Colab badge stand beside them; thebe is not used and left out."""

import importlib.util
import shutil
from pathlib import Path

# SVG output carries its glyphs in the one script; the extensions are what TeX's autoload may ask for.
MATHJAX = ["tex-svg.js", "input/tex/extensions"]
# Notebooks show this one, for Colab, GitHub and JupyterLab find it from anywhere; the book has its own.
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


def use_local_mathjax(app, config):
    config.mathjax_path = "mathjax/tex-svg.js"


def copy_mathjax(app):
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    source = Path(package.submodule_search_locations[0]) / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    target.mkdir(parents=True, exist_ok=True)
    for name in MATHJAX:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
        copy(source / name, target / name)


def stay_local(app, pagename, templatename, context, doctree):
    if "body" in context:
        context["body"] = context["body"].replace(COLAB_BADGE, context["pathto"]("_static/colab-badge.svg", 1))
    if "script_files" in context:
        context["script_files"] = [script for script in context["script_files"] if not _of_thebe(script)]


def _of_thebe(script) -> bool:
    body = getattr(script, "attributes", {}).get("body") or ""
    return "THEBE_JS_URL" in body or "sphinx-thebe" in str(getattr(script, "filename", ""))


def setup(app):
    app.connect("config-inited", use_local_mathjax)
    app.connect("builder-inited", copy_mathjax)
    app.connect("html-page-context", stay_local, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
