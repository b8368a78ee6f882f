//! Follows the legs of one node.
