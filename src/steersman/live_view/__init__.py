"""What goes on in a live cluster, for people: what is asked for of each node, who waits, who decides."""
