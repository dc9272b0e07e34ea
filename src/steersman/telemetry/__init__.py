"""What monitoring knows about a cluster: metrics with their age, and a simulated cluster that they are measured on."""
