"""What the book runs: the checks behind the ledger, the figures of its notebooks, and their parameters."""

import hmmlib  # noqa: F401  before torch, whose threads would spin beside other work
