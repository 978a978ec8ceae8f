"""Text work for surroundings, which are what stands before a request where a model lives: those that ship, those of a
person's own records, and the conversation around a request. Pure; which one comes next is decided in
`core/surroundings`."""
