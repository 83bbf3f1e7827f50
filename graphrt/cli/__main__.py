"""`python -m graphrt.cli` is the command `graphrt`."""

from __future__ import annotations

import sys

from graphrt.cli import main

sys.exit(main())
