"""`steersman workbench`: JupyterLab, TensorBoard and the dashboard beside a local cluster."""
