"""Where pods come from: traces, Kubernetes objects, generated Deployments, and the experiments made of them."""
