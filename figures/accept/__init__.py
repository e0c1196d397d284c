"""Figure 6: one drafted position under the microscope: p, q, what is kept and what is supplied."""
