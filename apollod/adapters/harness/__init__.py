"""Tasks of lm-evaluation-harness, read with its own code where it is installed (the extra `lm-eval`)."""
