"""How many of the secrets in a labelled sample redaction finds, and how often it takes something else for one."""
