"""Figure 1: time of one forward pass against the number of tokens it handles."""
