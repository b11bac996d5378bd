//! Authentication: client certificates, tokens, service accounts, front proxies; the first that knows the caller wins.
