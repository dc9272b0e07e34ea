"""What schedulers are worth: experiments over workloads, policies and seeds, their statistics, files and report."""
