"""GGUF files: the container, quantised tensors, and decoder graphs of the llama family."""
