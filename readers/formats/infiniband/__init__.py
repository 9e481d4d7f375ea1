"""Output of InfiniBand tools: ports, links, fabrics, perftest."""
