"""Compiled steps of answers, apart, so that an edit elsewhere compiles nothing anew."""
