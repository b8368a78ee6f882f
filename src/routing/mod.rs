//! From quality states to hunt orders. Pure.
