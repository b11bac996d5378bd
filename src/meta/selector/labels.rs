//! Label selectors: `a=b,c!=d,e in (f,g),!h` and LabelSelector objects.
