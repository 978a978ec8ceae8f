"""`apollod ctl quality`: measure the model, and read what its guard knows and did."""
