"""The command ``delta-sharing``."""
