"""What people say of answers that the engine gave, and what follows for learning: `policy` records it, and `intake`
takes what is to be learned into the queue and out of it."""
