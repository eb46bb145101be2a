"""A run as one page that needs nothing but a browser."""

from importlib import resources


def asset(name: str) -> str:
    """Return a file that the page is made of."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
