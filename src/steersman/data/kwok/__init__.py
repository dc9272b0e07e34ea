"""Rules of KWOK, see README.md."""
