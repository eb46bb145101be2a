"""A test under @given: hypothesis draws examples, and the search finds and judges the worst.

Hypothesis shrinks: `budget` gives it time, `search` remembers calls, and `strategies` say towards what.

A call is remembered by all that hypothesis has drawn for its example. When hypothesis repeats an example, to shrink or
to replay it, each call has the same result, error or rejection, so hypothesis never calls the test flaky. The
text of an example is not enough: st.data(), tensors and large arrays look the same for many examples.
"""

from pytest_gpubench.search.example import Example
from pytest_gpubench.search.given import intercepting_examples
from pytest_gpubench.search.search import Search

__all__ = ["Example", "Search", "intercepting_examples"]
