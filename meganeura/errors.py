"""The one error tree. Every mistake a user can make surfaces as one of these classes.

Each error carries what went wrong as attributes (`op`, `source`, `shapes`, `limit`, `remedy`), and its
message is made of them, so that a program can read the fields and a person can read the sentence.
"""

from __future__ import annotations

from typing import Any


class MeganeuraError(Exception):
    """Base of all errors of this package.

    Args:
        message: what happened, in one sentence.
        op: the op's name in the IR or in the source file.
        source: where it came from: a file, a node name, a rule file and line.
        shapes: the shapes or types that were met, already readable.
        limit: the device or option limit that was passed.
        remedy: what the reader can do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        source: str | None = None,
        shapes: Any = None,
        limit: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.summary = message
        self.op = op
        self.source = source
        self.shapes = shapes
        self.limit = limit
        self.remedy = remedy
        super().__init__(self._compose())

    def _compose(self) -> str:
        parts = [self.summary]
        if self.op and self.op not in self.summary:
            parts.append(f"op: {self.op}")
        if self.source and self.source not in self.summary:
            parts.append(f"from: {self.source}")
        if self.shapes is not None:
            parts.append(f"shapes: {self.shapes}")
        if self.limit:
            parts.append(f"limit: {self.limit}")
        if self.remedy:
            parts.append(f"remedy: {self.remedy}")
        return "; ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON-ready fields: always `type` and `message`, the rest where known."""
        fields: dict[str, Any] = {"type": type(self).__name__, "message": str(self)}
        for name in ("op", "source", "limit", "remedy"):
            value = getattr(self, name)
            if value is not None:
                fields[name] = value
        if self.shapes is not None:
            fields["shapes"] = str(self.shapes)
        return fields


class GraphError(MeganeuraError):
    """A graph that breaks an op's shape or type rule, or the structure of the IR."""


class ImportFailure(MeganeuraError):
    """A model file that cannot be read, or holds something no front end can express."""


class RuleError(MeganeuraError):
    """A rule file that is malformed, or a rule that was caught being unsound."""


class LimitError(MeganeuraError):
    """A program that needs more than the device or an option allows."""


class DeviceError(MeganeuraError):
    """No such device, a device without a needed feature, or a failure on the device."""


class InputError(MeganeuraError):
    """A missing, misshapen or wrongly typed input, or an option value that makes no sense."""


class CheckpointError(MeganeuraError):
    """A saved file that is truncated, altered, or belongs to another graph."""
