"""Back ends that carry out updates: backend.py has the protocol, formulas.py the back end of every optimizer,
apollo_triton.py Triton's for APOLLO, and device_kernels.py chooses between them when weights are attached. Defines no
formula."""
