//! Admission: the chain of plugins between a decoded request and the store.
