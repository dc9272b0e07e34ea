"""openb traces, gzip-compressed; source and licence in README.md."""
