"""Review of examples: `apollod ctl example approve|decline|hold|edit`, and the screen of `apollod ctl review`.

The journal says what waits (`held_queue`, `candidate`), the daemon is asked to record what was decided (`deciding`);
what a sitting knows and what its keys mean is pure (`sitting`, `candidate_page`); only `screen` knows the terminal.
"""
