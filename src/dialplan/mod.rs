//! From hunt orders and states to the variables that dialplans read.
