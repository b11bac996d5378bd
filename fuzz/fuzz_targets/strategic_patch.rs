//! Strategic merge patches: a patch and what it is applied to, on a line each. Every one is answered, and what comes out of
//! a patch that fits its type is in form.
#![no_main]

use keelson::codec::conform::{Rules, conform};
use keelson::codec::json;
use keelson::merge::patch::strategic;
use keelson::meta::{Gvk, Value};
use keelson::schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == b'\n').map(|part| json::parse(part).map(|(value, _)| value));
    let (Some(Ok(Value::Object(patch))), Some(Ok(Value::Object(mut live)))) = (parts.next(), parts.next()) else { return };
    let ty = schema::builtin().get(&Gvk::new("apps", "v1", "Deployment")).expect("a built-in kind");
    if strategic::apply(&mut live, patch, ty).is_err() || !conform(&mut live, ty, Rules::Unstructured) {
        return;
    }
    let once = Value::Object(live.clone()).to_string();
    assert!(conform(&mut live, ty, Rules::Json), "what is in form stays so");
    assert_eq!(Value::Object(live).to_string(), once);
});
