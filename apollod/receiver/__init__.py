"""The receiver child: takes weights of a foreign trainer, which it broadcasts over gloo or NCCL or has laid ready in
memory of this machine, and writes them to a file.

Gloo ends a process by abort() when a sender sends more than was announced. So this process has nothing to lose: no
weights of its own, no view of the engine's memory, no model, and no more of the received weights than one broadcast.
It neither knows the model's names and shapes nor decides what becomes of the file. No pickle is read or written here,
and no object put into the group's store. It is never imported: it is started by its module's name.

payload.py checks what is announced and cuts it into broadcasts, meeting.py finds the sender's store, gloo_group.py and
nccl_group.py are the group, nccl_id.py reads its id, receiving.py puts them together; taking.py copies by handles,
shared_files.py and device_memory.py open these. weights_file.py is the file, finite_values.py
looks at values. Only meeting.py, the groups, receiving.py and device_memory.py import torch.
"""
