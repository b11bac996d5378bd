//! Partial decoding: the part of an object that a reader needs, given as paths.

use crate::schema::{Kind, TypeRef};

/// The fields of a type that are decoded, and those of their messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// By the index of the field in its type.
    fields: Vec<Wanted>,
    /// The indexes of those that are wanted, in the order of the type.
    pub(super) order: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Nothing,
    Whole,
    ByteRange(Box<Projection>),
}

/// The part of a field that is decoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    Skip,
    Whole,
    ByteRange(&'a Projection),
}

impl Projection {
    /// The fields at dotted paths (`spec.containers.name`), with everything in them. Lists and maps
    /// are no steps of their own: the rest of a path holds for each of their items. What the type
    /// does not have is left out.
    pub fn new<'p>(ty: TypeRef, paths: impl IntoIterator<Item = &'p str>) -> Self {
        let mut out = Self::default();
        for path in paths {
            out.add(ty, path);
        }
        out.put_in_order();
        out
    }

    fn put_in_order(&mut self) {
        self.order = (0..self.fields.len())
            .filter(|&index| self.fields[index] != Wanted::Nothing)
            .collect();
        for wanted in &mut self.fields {
            if let Wanted::ByteRange(part) = wanted {
                part.put_in_order();
            }
        }
    }

    fn add(&mut self, ty: TypeRef, path: &str) {
        let (name, rest) = path
            .split_once('.')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let Some(&index) = ty.get().by_json.get(name) else {
            return;
        };
        self.fields.resize(ty.get().fields.len(), Wanted::Nothing);
        let field = &ty.get().fields[index];
        // An inlined field comes with the message that carries it.
        if let Some(via) = field.via {
            self.fields[via] = Wanted::Whole;
        }
        let inner = match &field.kind {
            Kind::Message(id) => Some(*id),
            Kind::List(item, _) | Kind::Map(item, _) => match **item {
                Kind::Message(id) => Some(id),
                _ => None,
            },
            _ => None,
        };
        let (Some(rest), Some(id)) = (rest, inner) else {
            self.fields[index] = Wanted::Whole;
            return;
        };
        if self.fields[index] == Wanted::Nothing {
            self.fields[index] = Wanted::ByteRange(Box::default());
        }
        if let Wanted::ByteRange(part) = &mut self.fields[index] {
            part.add(ty.to(id), rest);
        }
    }

    pub(super) fn choice(&self, index: usize) -> Choice<'_> {
        match self.fields.get(index) {
            None | Some(Wanted::Nothing) => Choice::Skip,
            Some(Wanted::Whole) => Choice::Whole,
            Some(Wanted::ByteRange(part)) => Choice::ByteRange(part),
        }
    }
}

impl<'a> Choice<'a> {
    /// Returns the part of the messages in the field that is decoded; `None` for everything.
    pub fn inner(self) -> Option<&'a Projection> {
        match self {
            Choice::ByteRange(part) => Some(part),
            Choice::Skip | Choice::Whole => None,
        }
    }
}
