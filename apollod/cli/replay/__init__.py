"""`apollod replay`: recorded steps run again in a process of their own, apart from the daemon.

`replay_plan` reads from the journal what to run, `replay_origin` finds the weights to begin with, `replay_command` runs
and compares. The steps themselves are the trainer's (`apollod.trainer.offline`, started by module name).
"""
