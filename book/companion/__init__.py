"""What the book runs: the checks behind the ledger, the figures of its notebooks, and their parameters."""
