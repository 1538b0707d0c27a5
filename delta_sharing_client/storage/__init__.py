"""Directory access: reads tables and other assets in their own storage, with credentials from the sharing server."""
