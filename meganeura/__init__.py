"""An e-graph-optimising neural-network compiler: graphs in, specialised WGSL kernels out."""
