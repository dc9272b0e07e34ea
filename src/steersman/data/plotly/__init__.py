"""plotly.js, the part of it that reports use; source and licence in README.md and LICENSE."""
