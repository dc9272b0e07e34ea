"""The documentation as a site: `python -m website` builds it from docs/, the code and the results of studies."""
