"""Commands that serve pages for a browser."""
