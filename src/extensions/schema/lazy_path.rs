//! Lazily formatted paths to values of custom objects. Most values are valid, so the text is only
//! built for errors.

use std::fmt;

use crate::meta::Path;

/// A path, linked to that of the parent.
#[derive(Clone, Copy, Debug)]
pub enum LazyPath<'a> {
    /// The start of the walk.
    Root(&'a str),
    /// `.name`, or just the name where nothing is before it.
    Field(&'a LazyPath<'a>, &'a str),
    /// `.name`.
    Dotted(&'a LazyPath<'a>, &'a str),
    /// `[key]`.
    Key(&'a LazyPath<'a>, &'a str),
    /// `[index]`.
    Index(&'a LazyPath<'a>, usize),
}

impl<'a> LazyPath<'a> {
    /// The root, of which nothing is shown.
    pub const EMPTY: Self = Self::Root("");

    /// The place that this one is below.
    fn above(&self) -> Option<&'a LazyPath<'a>> {
        match self {
            Self::Root(_) => None,
            Self::Field(above, _)
            | Self::Dotted(above, _)
            | Self::Key(above, _)
            | Self::Index(above, _) => Some(above),
        }
    }

    /// Reports whether it shows as nothing.
    pub fn is_empty(&self) -> bool {
        let mut at = self;
        loop {
            match at {
                Self::Root(text) => return text.is_empty(),
                Self::Field(above, "") => at = above,
                _ => return false,
            }
        }
    }

    /// The path of a field below, as errors have it.
    pub fn child(&self, name: &str) -> Path {
        self.path().child(name)
    }

    /// The path that errors have.
    pub fn path(&self) -> Path {
        match self.to_string() {
            text if text.is_empty() => Path::default(),
            text => Path::default().child(&text),
        }
    }
}

impl fmt::Display for LazyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps: Vec<&LazyPath<'_>> =
            std::iter::successors(Some(self), |place| place.above()).collect();
        steps.reverse();
        let mut begun = false;
        for step in steps {
            match step {
                Self::Root(text) => f.write_str(text)?,
                Self::Field(_, name) if !begun => f.write_str(name)?,
                Self::Field(_, name) | Self::Dotted(_, name) => write!(f, ".{name}")?,
                Self::Key(_, key) => write!(f, "[{key}]")?,
                Self::Index(_, index) => write!(f, "[{index}]")?,
            }
            begun |= !matches!(step, Self::Root("") | Self::Field(_, ""));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LazyPath::{Dotted, Field, Index, Key};
    use super::*;

    #[test]
    fn lazy_paths_print_as_field_paths() {
        let root = LazyPath::EMPTY;
        let spec = Field(&root, "spec");
        let (list, odd) = (Index(&spec, 3), Dotted(&root, "x"));
        let shown = [
            root,
            spec,
            list,
            odd,
            Key(&list, "k"),
            Field(&Field(&root, ""), "a"),
        ]
        .map(|place| place.to_string());
        assert_eq!(shown, ["", "spec", "spec[3]", ".x", "spec[3][k]", "a"]);
        assert!(Field(&root, "").is_empty() && !odd.is_empty());
        assert_eq!(list.path(), Path::new("spec").index(3));
    }
}
