//! Request options: get, list, create, update, patch and delete options from the query or body.
