"""The score service: a policy's scores over HTTP for other schedulers. It never learns and never binds."""
