"""The weights of a model directory on disk: found, compared, brought up to date so that no crash can tear them, and
undone."""
