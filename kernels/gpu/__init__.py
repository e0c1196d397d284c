"""What runs on an NVIDIA GPU: graphs of whole passes, and kernels in Triton. Imports nothing."""
