//! The encoding of Tables: of one object, of a list object by object, and of trees.

use std::sync::Arc;

use crate::builtin;
use crate::cacher::{CachedObject, Representation, Retention};
use crate::codec;
use crate::endpoints::body::Body;
use crate::meta::Object;
use crate::meta::status::Result;
use crate::registry::cells::{Cells, CellsRef};
use crate::registry::store::{Page, unreadable};
use crate::registry::table::{Format, IncludeObject, ListMeta, TableWriter, projection};

use super::list::table_meta;
use super::list_body::{self, ListFraming};
use super::{Encoder, MediaType, Source, fixed_body, meta_version};

impl Encoder {
    /// The body of an answer with a Table of one object, with column definitions if `headers`.
    pub(super) fn table_of(&self, source: Source, version: &str, headers: bool) -> Result<Vec<u8>> {
        if let Source::Stored(stored) = &source
            && self.output.media == MediaType::Json
            && self.resource().stored_as_served()
            && self.has_independent_rows(version)
        {
            let (mut out, format) = (Vec::new(), self.format(version));
            let revision = stored.written_at().map(|at| at.to_string());
            let meta = ListMeta {
                resource_version: &revision.unwrap_or_default(),
                ..ListMeta::default()
            };
            format.head(meta, headers, &mut out);
            out.extend_from_slice(format.before_row(true));
            self.write_row(stored, version, Retention::Request, &mut out)?;
            out.extend_from_slice(format.tail(false));
            return Ok(self.json_body(out));
        }
        let object = self.storage_tree(source)?;
        let meta = ListMeta {
            resource_version: object.resource_version(),
            ..ListMeta::default()
        };
        self.table_of_trees(std::slice::from_ref(&object), meta, version, headers)
    }

    /// The body of an answer with a list as a Table, row after row.
    pub(super) async fn table_list(&self, page: Page, version: &'static str) -> Result<Body> {
        let format = self.format(version);
        let (mut head, revision) = (Vec::new(), page.revision.to_string());
        format.head(table_meta(&page, &revision), true, &mut head);
        head.extend_from_slice(format.before_row(true));
        let framing = ListFraming {
            head,
            separator: format.before_row(false),
            tail: [format.tail(false), b"\n"].concat(),
            is_indented: self.is_indented(),
        };
        let encoder = self.clone();
        let encode = move |stored: &Arc<CachedObject>, out: &mut Vec<u8>| {
            encoder.write_row(stored, version, Retention::Scan, out)
        };
        list_body::stream(framing, page.items, encode).await
    }

    /// A Table of objects of the storage version, as a body.
    pub(super) fn table_of_trees(
        &self,
        objects: &[Object],
        meta: ListMeta,
        version: &str,
        headers: bool,
    ) -> Result<Vec<u8>> {
        let mut format = self.format(version);
        if let [scale] = objects
            && scale.kind() == "Scale"
        {
            format.printer = builtin::scale_printer();
        }
        let mut order: Vec<&Object> = objects.iter().collect();
        if let Some(compare) = format.printer.order() {
            order.sort_by(|a, b| compare(a, b));
        }
        let mut writer = TableWriter::new(format, meta, headers);
        for object in order {
            let convert =
                self.include == IncludeObject::Object && self.resource().conversion.is_some();
            let served = convert
                .then(|| self.tree(Source::Tree(object.clone())))
                .transpose()?;
            writer.row(object, served.as_ref());
        }
        let json = writer.finish();
        if self.output.media == MediaType::Json {
            return Ok(self.json_body(json));
        }
        let table = codec::json::parse(&json)
            .ok()
            .and_then(|(value, _)| Object::from_value(value));
        Ok(fixed_body(&table.unwrap_or_default(), self.output))
    }

    /// Reports whether each row is made of one object, and shows the metadata that a list of
    /// metadata shows. What conversion adds to them Tables do not show.
    pub(super) fn has_independent_rows(&self, version: &str) -> bool {
        self.format(version).printer.order().is_none() && self.resource().conversion.is_none()
    }

    /// The format of the Tables of the resource.
    fn format(&self, version: &str) -> Format<'_> {
        let gvr = &self.resource().gvr;
        let printer = self
            .resource()
            .strategy
            .printer()
            .unwrap_or_else(|| builtin::printer(&gvr.group, &gvr.resource));
        Format {
            printer,
            api_version: meta_version(version),
            include: self.include,
            now: self.now,
        }
    }

    /// Appends the row of an object.
    fn write_row(
        &self,
        stored: &Arc<CachedObject>,
        version: &str,
        retention: Retention,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let format = self.format(version);
        let show = |out: &mut Vec<u8>| match self.include {
            IncludeObject::None => {
                out.extend_from_slice(b"null");
                Ok(())
            }
            IncludeObject::Metadata => {
                self.write_partial(stored, meta_version(version), retention, out)
            }
            IncludeObject::Object => self.write_object(stored, retention, out),
        };
        match self.encoding(stored, Representation::TableRow, retention)? {
            Some(kept) => {
                let cells = CellsRef {
                    text: &kept.bytes,
                    ages: &kept.ages,
                };
                format.row_with(cells, out, show)
            }
            None => format.row_with(self.cells(stored)?.as_ref(), out, show),
        }
    }

    /// The cells of the row of an object. Of stored bytes only what the printer reads is decoded.
    pub(super) fn cells(&self, stored: &Arc<CachedObject>) -> Result<Cells> {
        let format = self.format("v1");
        let Some(message) = self.message(stored)? else {
            return Ok(format.cells(&self.storage_tree(Source::Stored(stored.clone()))?));
        };
        let part = self
            .projection
            .get_or_init(|| Arc::new(projection(format.printer.paths(), message.ty)));
        let object = codec::protobuf::decode_part(message.bytes, message.ty, part);
        Ok(format.cells(&object.map_err(unreadable)?))
    }
}
