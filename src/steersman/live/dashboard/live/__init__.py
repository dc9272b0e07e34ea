"""A live cluster in the browser: watches, history, what rules would have decided, metrics of schedulers."""
