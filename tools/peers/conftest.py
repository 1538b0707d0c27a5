"""Give these comparisons, which only the commands in ``scripts/`` run, the fixtures of the tests."""

pytest_plugins = ["tests.conftest"]
