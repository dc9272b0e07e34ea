"""What tests of several files share."""
