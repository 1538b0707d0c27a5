"""Directory access: a table read from its own storage, with temporary credentials that the sharing server gives out."""
