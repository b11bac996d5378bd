//! events.k8s.io: the other face of core Events, which are stored as `v1`.

use crate::builtin::resource_traits::ResourceEntry;
use crate::meta::{Key, Map, Object};
use crate::registry::resource::Conversion;

/// The resources of the group.
pub static ENTRIES: &[&ResourceEntry] = &[&super::core::event::EVENTS_ENTRY];

/// Fields of a core Event that have another name in events.k8s.io.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Between core `v1` (stored) and events.k8s.io `v1` (served).
#[derive(Clone, Copy, Debug)]
pub struct EventConversion;

impl Conversion for EventConversion {
    fn to_storage(&self, object: &mut Object) {
        rename(object, |name| {
            RENAMED
                .iter()
                .find(|(_, new)| *new == name)
                .map(|(core, _)| *core)
        });
    }

    fn to_served(&self, object: &mut Object) {
        rename(object, |name| {
            RENAMED
                .iter()
                .find(|(core, _)| *core == name)
                .map(|(_, new)| *new)
        });
    }
}

fn rename(object: &mut Object, name: impl Fn(&str) -> Option<&'static str>) {
    let old: Map = std::mem::take(&mut object.0);
    object.0 = old
        .into_iter()
        .map(|(key, value)| (name(&key).map_or(key, Key::new), value))
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn an_event_survives_both_ways() {
        let core = json!({"kind": "Event", "involvedObject": {"name": "p"}, "message": "m", "reportingComponent": "c", "reason": "r"});
        let mut object = Object::from_value(core.clone()).expect("an object");
        EventConversion.to_served(&mut object);
        assert_eq!(
            (
                object.str_at("/regarding/name"),
                object.str_at("/note"),
                object.str_at("/reportingController")
            ),
            ("p", "m", "c")
        );
        EventConversion.to_storage(&mut object);
        assert_eq!(crate::meta::Value::from(object), core);
    }
}
