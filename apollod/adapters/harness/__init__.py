"""Tasks of lm-evaluation-harness, read with its own code if it is installed (the extra `lm-eval`)."""
