"""`steersman dashboard`: pages in a browser that show how policies fill a cluster, and why."""
