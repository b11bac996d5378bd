//! Checks that several kinds share.
