"""A test whose examples hypothesis makes: a cheap look at each, the full protocol for the worst, all remembered.

What is remembered is a verdict by what hypothesis had drawn: where it calls a test again with the same, to shrink or to
replay, it gets the same verdict, and never has to call a test flaky. The same holds for an example that did not fit
into memory, and for one that failed by an error of ours. Text alone tells no examples apart: that of st.data(), of a
tensor or of a large array is the same for many.
"""

from pytest_gpubench.search.comparisons import Search
from pytest_gpubench.search.example import Example
from pytest_gpubench.search.following import following_examples
from pytest_gpubench.search.no_search import NoSearch

__all__ = ["Example", "NoSearch", "Search", "following_examples"]
