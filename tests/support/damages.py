"""How tests damage the library: one sign, one index or one factor."""


def instead(place, name, make):
    """A damage, which takes a monkeypatch: `make(honest)` stands in the place of `place.name`."""
    return lambda patch: patch.setattr(place, name, make(getattr(place, name)))
