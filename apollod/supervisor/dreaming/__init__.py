"""Dreams, as far as they are carried out here: who imagines and answers, and when the engine is free for it. What is
dreamt is decided in `core/dreams`."""
