"""Ctrl-C that always ends cleanly, wherever it strikes."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

CODE = 130
"""The exit code of an interrupted command, as shells know it."""


def started_as_command() -> bool:
    """Whether this process is `meganeura` or `python -m meganeura`, and not a program that imports the package."""
    started = getattr(sys, "argv", [""])[:1]
    if started == ["-m"]:  # what Python has there while it imports the package of the module to run
        given = sys.orig_argv
        return given[given.index("-m") + 1 :][:1] == ["meganeura"] if "-m" in given else False
    return bool(started) and os.path.basename(started[0]) in ("meganeura", "meganeura.exe", "meganeura-script.py")


def install_for_start() -> None:
    """Let SIGINT end the process at once and quietly, while modules are imported and there is nothing to tidy."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(CODE))


def install() -> None:
    """Let SIGINT raise KeyboardInterrupt, or end the process where an exception would be swallowed."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # a background job of a shell: the user's Ctrl-C is not for us
    signal.signal(signal.SIGINT, _handle)


def _handle(_signal: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, lambda *_: os._exit(CODE))  # a second press does not wait for tidying
    if _inside_device_call(frame):
        # wgpu's callbacks run inside a C call, which prints exceptions and goes on. Nothing needs tidying there.
        _restore_terminal()
        os._exit(CODE)
    raise KeyboardInterrupt


def _inside_device_call(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("wgpu"):
            return True
        frame = frame.f_back
    return False


def _restore_terminal() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.write("\x1b[?25h\n" if stream.isatty() else "")  # a progress bar may have hidden the cursor
            stream.flush()
        except (OSError, ValueError):
            continue
