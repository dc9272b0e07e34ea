"""The report of a comparison, as one HTML file."""
