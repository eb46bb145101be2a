from tests.timing.ranks.fake_ranks import ranks_saying

__all__ = ["ranks_saying"]
