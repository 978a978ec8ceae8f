"""The command line: parse, ask, print. stdout carries the result, stderr everything else."""
