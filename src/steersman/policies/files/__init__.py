"""Policy files: weights with a model card."""
