"""What each statement of the paper is checked by: witnesses that share no code with the library, random models, the ledger."""
