"""What a run says of itself while it learns, and what it is asked to do meanwhile: small files in its folder."""
