//! Bodies of applies: YAML or JSON. Every one is answered; what is applied by force can be applied again and changes nothing.
#![no_main]

use jiff::Timestamp;
use keelson::codec::yaml;
use keelson::merge::{OneVersion, Ty, Writer, apply};
use keelson::meta::{Gvk, Value};
use keelson::schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((Value::Object(mut config), _)) = yaml::to_value(bytes) else { return };
    config.insert("apiVersion".to_owned(), "apps/v1".into());
    config.insert("kind".to_owned(), "Deployment".into());
    let gvk = Gvk::new("apps", "v1", "Deployment");
    let ty = Ty::from(schema::builtin().get(&gvk).expect("a built-in kind"));
    let now = Timestamp::UNIX_EPOCH;
    let writer = Writer { manager: "fuzz", api_version: "apps/v1", subresource: "", now, reset_fields: &["/status"], ty, versions: &OneVersion };
    let Ok(once) = apply(None, &config, &gvk, &writer, true) else { return };
    let twice = apply(Some(&once), &config, &gvk, &writer, true).expect("what was applied once applies again");
    assert_eq!(once, twice);
});
