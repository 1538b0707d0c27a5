"""One exchange over HTTP: what may be asked, sessions, sign-in, limits, the body, failures and retries."""
