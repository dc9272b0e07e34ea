"""Options of commands: how they are spelled, parsed and checked."""
