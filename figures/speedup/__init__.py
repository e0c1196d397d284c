"""Figure 8: the speed-up over m and α, where it peaks, and where it is a loss."""
