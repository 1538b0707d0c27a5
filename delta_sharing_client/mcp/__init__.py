"""Shared data for assistants: a server of the Model Context Protocol (extra ``mcp``)."""
