"""`steersman/Deployments-v0`."""
