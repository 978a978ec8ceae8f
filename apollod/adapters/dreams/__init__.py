"""What dreams need of the outside: seeds from files and the journal, checks that run programs of somebody else."""
