"""Features of a node's GPUs, now and after a placement, and the arrays of learned scores over them."""
