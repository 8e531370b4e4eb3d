"""What pyproject.toml can't say: the chapters come along in the wheel.

`vit-tutorial handout` copies them, and `vit-tutorial grade` gives answers what the chapter defines around them.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CHAPTERS = [str(path) for path in sorted(Path("notebooks").glob("*.ipynb"))]


class WithChapters(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # there they are found in the clone
            folder = Path(self.build_lib) / "vit_tutorial/notebooks"
            self.mkpath(str(folder))
            for chapter in CHAPTERS:
                self.copy_file(chapter, str(folder / Path(chapter).name))

    def get_source_files(self) -> list[str]:
        """What belongs into a source distribution."""
        return [*super().get_source_files(), *CHAPTERS]


setup(cmdclass={"build_py": WithChapters})
