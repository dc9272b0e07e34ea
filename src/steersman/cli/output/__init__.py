"""Output of commands: messages, progress, tables and logs."""
