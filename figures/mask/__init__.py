"""What each output of a verification pass may look at, and the tensors that prove it."""
