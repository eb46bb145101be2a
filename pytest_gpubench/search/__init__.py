"""A test whose examples hypothesis makes: a cheap look at each, the full protocol for the worst, all remembered.

What is remembered is a comparison by the arguments it was made with: where hypothesis calls a test again with the same
arguments, to shrink or to replay, it gets the same verdict, and never has to call a test flaky. The same holds for an
example that did not fit into memory, and for one that failed by an error of ours.
"""

from pytest_gpubench.search.comparisons import Search
from pytest_gpubench.search.example import Example, Key
from pytest_gpubench.search.following import following_examples

__all__ = ["Example", "Key", "Search", "following_examples"]
