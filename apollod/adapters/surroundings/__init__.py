"""Where surroundings that do not ship are read from: the journal. What is made of it is in `curation/surroundings`."""
