"""Finding what is to blame when results on the device and the reference disagree.

`bisect` tells the faulty step of the compiler, names the rule, kernel or tensors, and shrinks the graph;
`write_cases` writes what is left as text that `meganeura verify` runs again.
"""

from meganeura.bisect.finding import Conflict, Finding, Tenant, WrongKernel
from meganeura.bisect.search import bisect
from meganeura.bisect.setting import Case, Setting
from meganeura.bisect.write import check_folder, replay_command, write_cases

__all__ = [
    "Case",
    "Conflict",
    "Finding",
    "Setting",
    "Tenant",
    "WrongKernel",
    "bisect",
    "check_folder",
    "replay_command",
    "write_cases",
]
