"""The command line: one file a command, and a frame that keeps its promises about output and exit codes."""

from meganeura.cli.app import main

__all__ = ["main"]
