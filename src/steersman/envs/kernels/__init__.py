"""Compiled steps of the environments, apart, so that an edit elsewhere compiles nothing anew."""
