"""Evolution strategies over policies: candidates and how they are evaluated."""
