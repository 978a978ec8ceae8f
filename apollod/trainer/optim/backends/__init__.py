"""Back ends that carry out updates: backend.py has the protocol, formulas.py the one for every optimizer,
apollo_triton.py Triton's for APOLLO; device_kernels.py chooses between them when weights are attached. They define no
formula."""
