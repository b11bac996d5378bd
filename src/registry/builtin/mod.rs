//! The strategies of the built-in kinds, a folder per API group.
