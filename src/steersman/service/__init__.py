"""The score service: a policy's opinion over HTTP, for schedulers that ask. It never learns and never binds."""
