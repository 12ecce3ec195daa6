"""What each statement of the paper is checked by: witnesses without the library's code, random models, the ledger."""
