"""Figure 2: a layer's weights stream through the machine, tile by tile."""
