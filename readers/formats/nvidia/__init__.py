"""Output of NVIDIA's tools: nvidia-smi, nvbandwidth, p2pBandwidthLatencyTest, Topograph."""
