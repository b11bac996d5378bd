//! What object names, labels and annotations must look like (apimachinery `util/validation`).
