"""The command line: one file a command, and a frame that keeps its promises about output and exit codes."""

from collections.abc import Sequence

from meganeura import interrupt

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments`, those of the process by default, and return its exit code."""
    interrupt.install_for_start()  # before what takes long to import
    from meganeura.cli.app import main as run

    return run(arguments)
