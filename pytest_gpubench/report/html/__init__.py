"""A run as one page that needs nothing but a browser."""

from pytest_gpubench.report.html.page import html_page

__all__ = ["html_page"]
