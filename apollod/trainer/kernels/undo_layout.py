"""The layout of undo records, shared by undo_codec.py and its kernels: blocks of elements, two bits each."""

BLOCK = 512  # elements
LANES = 64  # code words (16 bits, 8 elements) of a block: whole vector registers
