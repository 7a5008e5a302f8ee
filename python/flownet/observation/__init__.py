"""Reports, samples, logs and pages of jobs."""
