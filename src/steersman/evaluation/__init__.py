"""Evaluation of schedulers: experiments over workloads, policies and seeds, their statistics, files and report."""
