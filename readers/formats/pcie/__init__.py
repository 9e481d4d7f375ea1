"""Trees of PCIe devices."""
