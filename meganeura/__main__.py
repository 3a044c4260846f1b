"""`python -m meganeura` is the command line."""

import sys

from meganeura.cli import main

sys.exit(main())
