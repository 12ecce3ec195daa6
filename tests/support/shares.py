"""Shares as the pages print them."""


def percent(shares) -> str:
    """The mean of shares, in whole percent."""
    return f"{shares.mean():.0%}"
