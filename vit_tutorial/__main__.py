"""``python -m vit_tutorial`` is ``vit-tutorial``; torchrun starts it with ``-m vit_tutorial``."""

from vit_tutorial.cli import main

main()
