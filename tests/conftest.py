"""What all tests share."""

from hypothesis import settings

# The first example may compile a kernel, so no deadline per example; a failure prints how to replay it.
settings.register_profile("steersman", deadline=None, print_blob=True)
settings.load_profile("steersman")
