"""Figure 7: five rules judge the same guesses; one of them leaves the distribution alone."""
