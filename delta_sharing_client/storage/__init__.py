"""Directory access: reading a table from its own storage, with temporary credentials from the sharing server."""
