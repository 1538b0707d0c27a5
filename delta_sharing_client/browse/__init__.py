"""What is shared, as a page for people: a server on this machine alone, and its page (extra ``browse``)."""
