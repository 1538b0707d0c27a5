"""A web page that shows what is shared, and its server, which only this machine can reach (extra ``browse``)."""
