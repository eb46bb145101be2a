from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile("gpubench", deadline=None)  # no test of ours asserts a wall time
settings.load_profile("gpubench")
