"""``python -m vit_tutorial`` is ``vit-tutorial``; torchrun starts it with ``-m vit_tutorial``."""

import os
import signal


def _stop(*_: object) -> None:
    """End at once: an interrupt that is raised inside a library's import may get lost, or leave half a library."""
    os.write(2, b"vit-tutorial: interrupted before it began\n")
    os._exit(1)


def main() -> None:
    """Run the command, whose imports take some seconds; Ctrl-C ends them with one line, too."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a job in the background ignores it
    if ours:
        signal.signal(signal.SIGINT, _stop)
    from vit_tutorial.cli import main as command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
