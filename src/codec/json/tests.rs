//! JSON: values, issues and errors are those of Go, and no input does harm.

use super::*;
use crate::meta::selector::FieldReader;
use crate::meta::{Gvk, json, on_deep_stack};
use crate::schema::builtin;

fn typed(api_version: &str, kind: &str, body: &str) -> Result<Decoded, DecodeError> {
    decode(
        body.as_bytes(),
        builtin()
            .get(&Gvk::from_api_version(api_version, kind))
            .expect("a built-in kind"),
    )
}

/// Decodes and shows the JSON of the result, or the error.
fn round(api_version: &str, kind: &str, body: &str) -> String {
    match typed(api_version, kind, body) {
        Ok(decoded) => String::from_utf8(encode(&decoded.object)).expect("JSON is UTF-8"),
        Err(error) => error.0,
    }
}

#[test]
fn syntax_errors_are_those_of_go() {
    let table = [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (r#"{"apiVersion"#, "unexpected end of JSON input"),
        (
            "not json",
            "invalid character 'o' in literal null (expecting 'u')",
        ),
        (
            "apiVersion: v1",
            "invalid character 'a' looking for beginning of value",
        ),
        (
            "{a:1}",
            "invalid character 'a' looking for beginning of object key string",
        ),
        (
            r#"{"a":1,}"#,
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "[1,]",
            "invalid character ']' looking for beginning of value",
        ),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (
            r#"{"a":1 "b":2}"#,
            "invalid character '\"' after object key:value pair",
        ),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("\"a\tb\"", r"invalid character '\t' in string literal"),
        (r#""\x""#, "invalid character 'x' in string escape code"),
        (
            r#""\u00g0""#,
            r"invalid character 'g' in \u hexadecimal character escape",
        ),
        ("-x", "invalid character 'x' in numeric literal"),
        (
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        ),
        (
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        ),
        ("01", "invalid character '1' after top-level value"),
        (
            "\u{feff}{}",
            "invalid character 'ï' looking for beginning of value",
        ),
        (
            "'",
            r"invalid character '\'' looking for beginning of value",
        ),
    ];
    for (text, want) in table {
        assert_eq!(
            Document::new(text.as_bytes()).map(|_| ()),
            Err(DecodeError::new(want)),
            "{text}"
        );
    }
}

#[test]
fn custom_unmarshal_errors_precede_type_errors() {
    let error =
        |kind: &str, group: &str, body: &str| typed(group, kind, body).expect_err("refused").0;
    let lease = r#"{"spec":{"leaseDurationSeconds":"x","holderIdentity":1,"renewTime":"1Gi"}}"#;
    let time =
        r#"parsing time "1Gi" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "1Gi" as "2006""#;
    assert_eq!(error("Lease", "coordination.k8s.io/v1", lease), time);
    let first = "json: cannot unmarshal string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32";
    assert_eq!(
        error(
            "Lease",
            "coordination.k8s.io/v1",
            &lease.replace("1Gi", "2020-01-01T00:00:00.000000Z")
        ),
        first
    );
}

#[test]
fn json_depth_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Document::new(nested(MAX_DEPTH).as_bytes()).is_ok());
    let error = Document::new(nested(MAX_DEPTH + 1).as_bytes()).map(|_| ());
    assert_eq!(
        error,
        Err(DecodeError::new("invalid character '[' exceeded max depth"))
    );
    // What is unknown is passed over.
    let deep = format!(r#"{{"bogus":{}}}"#, nested(9000));
    assert_eq!(
        typed("v1", "ConfigMap", &deep).map(|decoded| decoded.issues),
        Ok(vec!["unknown field \"bogus\"".to_owned()])
    );
    on_deep_stack(|| {
        let deep = format!(r#"{{"data":{}}}"#, nested(MAX_DEPTH - 1));
        assert_eq!(
            typed("apps/v1", "ControllerRevision", &deep).map(|decoded| decoded.issues),
            Ok(Vec::new())
        );
    });
}

#[test]
fn type_meta_keys_ignore_case() {
    let meta = |text: &str| Document::new(text.as_bytes()).and_then(Document::type_meta);
    let want = TypeMeta {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    assert_eq!(
        meta(r#"{"KIND":"Pod","metadata":{"kind":"x"},"apiversion":"v1"}"#),
        Ok(want)
    );
    assert_eq!(meta("null"), Ok(TypeMeta::default()));
    let error = |text: &str| meta(text).expect_err("malformed").0;
    assert_eq!(
        error(r#"{"apiVersion":1,"kind":"Pod"}"#),
        "json: cannot unmarshal number into Go struct field .apiVersion of type string"
    );
    assert_eq!(
        error("[]"),
        r#"json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#
    );
}

#[test]
fn decoded_objects_show_the_fields_that_go_shows() {
    let table = [
        (
            "v1",
            "ConfigMap",
            r#"{"kind":"ConfigMap","data":{"b":"2","a":null},"binaryData":{}}"#,
            r#"{"kind":"ConfigMap","metadata":{},"data":{"a":"","b":"2"}}"#,
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            r#"{"rules":[]}"#,
            r#"{"metadata":{},"rules":[]}"#,
        ),
        (
            "apps/v1",
            "Deployment",
            r#"{"status":null,"spec":{"replicas":0,"template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1000m"}}}]}}}}"#,
            r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}},"strategy":{}},"status":{}}"#,
        ),
        (
            "v1",
            "Service",
            r#"{"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81}]}}"#,
            r#"{"metadata":{},"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":0}]},"status":{"loadBalancer":{}}}"#,
        ),
        (
            "v1",
            "Event",
            r#"{"metadata":{"creationTimestamp":null},"firstTimestamp":"2020-01-02T03:04:05+02:00","eventTime":"2020-01-02T03:04:05.000001Z"}"#,
            r#"{"metadata":{},"involvedObject":{},"source":{},"firstTimestamp":"2020-01-02T01:04:05Z","lastTimestamp":null,"eventTime":"2020-01-02T03:04:05.000001Z","reportingComponent":"","reportingInstance":""}"#,
        ),
        (
            "v1",
            "Secret",
            r#"{"data":{"a":"AQI\n="}}"#,
            r#"{"metadata":{},"data":{"a":"AQI="}}"#,
        ),
        (
            "v1",
            "Pod",
            r#"{"spec":{"volumes":[{"emptyDir":{},"name":"v"}],"containers":null,"securityContext":{}}}"#,
            r#"{"metadata":{},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":null,"securityContext":{}},"status":{}}"#,
        ),
        (
            "apps/v1",
            "ControllerRevision",
            r#"{"data":{"z":1.5,"a":[null]}}"#,
            r#"{"metadata":{},"data":{"z":1.5,"a":[null]},"revision":0}"#,
        ),
        (
            "apps/v1",
            "ControllerRevision",
            "{}",
            r#"{"metadata":{},"data":null,"revision":0}"#,
        ),
    ];
    for (version, kind, body, want) in table {
        assert_eq!(round(version, kind, body), want, "{body}");
    }
}

#[test]
fn schemas_of_crds_keep_their_alternatives() {
    let body = r#"{"spec":{"group":"g","scope":"","names":{"plural":"p","kind":"K"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{
        "properties":{"a":{"additionalProperties":true,"maximum":1.0},"b":{"additionalProperties":{"type":"string"}},
        "c":{"items":[{"type":"string","bogus":1}]},"d":{"items":{"$ref":"x","x-kubernetes-list-map-keys":["k"]}}}}}}]}}"#;
    let want = r#"{"metadata":{},"spec":{"group":"g","names":{"plural":"p","kind":"K"},"scope":"","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"properties":{"a":{"maximum":1,"additionalProperties":true},"b":{"additionalProperties":{"type":"string"}},"c":{"items":[{"type":"string"}]},"d":{"items":{"$ref":"x","x-kubernetes-list-map-keys":["k"]}}}}}}]},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#;
    let decoded =
        typed("apiextensions.k8s.io/v1", "CustomResourceDefinition", body).expect("valid");
    assert_eq!(String::from_utf8_lossy(&encode(&decoded.object)), want);
    assert_eq!(
        decoded.issues,
        Vec::<String>::new(),
        "a type that decodes itself notes nothing"
    );
}

#[test]
fn type_errors_are_those_of_go() {
    let table = [
        (
            "apps/v1",
            "Deployment",
            r#"{"spec":{"replicas":"3"}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            r#"{"spec":{"replicas":3.0}}"#,
            "json: cannot unmarshal number 3.0 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            r#"{"spec":{"replicas":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            r#"{"spec":[]}"#,
            "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            "apps/v1",
            "Deployment",
            r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1.5}}}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"data":["x"]}"#,
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"data":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"binaryData":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.binaryData of type []uint8",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"binaryData":{"a":"%%%"}}"#,
            "illegal base64 data at input byte 0",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"metadata":{"name":true}}"#,
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"metadata":{"uid":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.uid of type types.UID",
        ),
        (
            "v1",
            "ConfigMap",
            r#"{"metadata":"x"}"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            "v1",
            "ConfigMap",
            "[]",
            "json: cannot unmarshal array into Go value of type v1.ConfigMap",
        ),
        (
            "v1",
            "Event",
            r#"{"firstTimestamp":1}"#,
            "json: cannot unmarshal number into Go struct field Event.firstTimestamp of type string",
        ),
        (
            "v1",
            "Service",
            r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
            "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            "v1",
            "Pod",
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1x"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "v1",
            "Pod",
            r#"{"spec":{"containers":[{"resources":{"limits":3}}]}}"#,
            "json: cannot unmarshal number into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            "v1",
            "Pod",
            r#"{"spec":{"containers":["x"]}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "v1",
            "Pod",
            r#"{"spec":{"containers":[{"securityContext":{"capabilities":{"add":[1]}}}]}}"#,
            "json: cannot unmarshal number into Go struct field Capabilities.spec.containers.securityContext.capabilities.add of type v1.Capability",
        ),
    ];
    for (version, kind, body, want) in table {
        assert_eq!(round(version, kind, body), want, "{body}");
    }
}

#[test]
fn issues_come_in_the_order_of_the_document() {
    let pod = r#"{"metadata":{"name":"a","name":"b"},"spec":{"Containers":[],"containers":[{"image":"a","image":"b","env":[{"bogus":1}]}]},"spec2":0,"APIVERSION":1}"#;
    let issues = typed("v1", "Pod", pod).expect("valid").issues;
    let want = [
        r#"duplicate field "metadata.name""#,
        r#"unknown field "spec.Containers""#,
        r#"duplicate field "spec.containers[0].image""#,
        r#"unknown field "spec.containers[0].env[0].bogus""#,
        r#"unknown field "spec2""#,
        r#"unknown field "APIVERSION""#,
    ];
    assert_eq!(issues, want);
    let decoded = typed(
        "v1",
        "ConfigMap",
        r#"{"data":{"k":"1","k":"2"},"immutable":true,"immutable":false}"#,
    )
    .expect("valid");
    assert_eq!(
        decoded.issues,
        [
            r#"duplicate field "data.k""#,
            r#"duplicate field "immutable""#
        ]
    );
    assert_eq!(decoded.object.str_at("/data/k"), "2");
}

#[test]
fn untyped_json_keeps_integers_and_notes_duplicates() {
    let (value, issues) = parse(
        br#"{"a":{"b":[{"c":1,"c":2}]},"i":9223372036854775807,"f":1e2,"s":"\ud83d\ude00\ud800"}"#,
    )
    .expect("valid");
    assert_eq!(
        value,
        json!({"a": {"b": [{"c": 2}]}, "i": i64::MAX, "f": 100.0, "s": "😀\u{fffd}"})
    );
    assert_eq!(issues, [r#"duplicate field "a.b[0].c""#]);
}

#[test]
fn any_prefix_of_a_document_is_refused_without_harm() {
    let body = r#"{"kind":"Pod","spec":{"containers":[{"name":"\u00e9","resources":{"limits":{"cpu":1.5e-3}}}],"x":[true,null]}}"#;
    for end in 0..body.len() {
        assert!(typed("v1", "Pod", &body[..end]).is_err(), "{end}");
    }
    assert!(typed("v1", "Pod", body).is_ok());
}

#[test]
fn scalars_and_labels_are_read_without_decoding() {
    let text =
        br#" { "spec" : {"skip": {"a": "}\"]", "b": [[{}], "]"]}, "list": [1, {"ip": "::1"}], "on" : true, "n":-5, "f": 1.50, "z": -0,
        "none": null, "key\u003c": "a\u00e9\n" }, "metadata" : {"labels": {"a": "1", "b\"": "2"}} } "#;
    let reader = Reader::new(text);
    let table = [
        ("spec.list.0", "1"),
        ("spec.list.1.ip", "::1"),
        ("spec.list.2", ""),
        ("spec.on", "true"),
        ("spec.n", "-5"),
        ("spec.f", "1.5"),
        ("spec.z", "0"),
        ("spec.none", ""),
        ("spec.key<", "a\u{e9}\n"),
        ("spec.skip", ""),
        ("spec.skip.b.1", "]"),
        ("spec.skip.a", "}\"]"),
        ("metadata.labels.a", "1"),
    ];
    for (path, want) in table {
        assert_eq!(reader.text_at(path), want, "{path}");
    }
    assert_eq!(reader.label("b\"").as_deref(), Some("2"));
    assert_eq!(
        reader.labels().collect::<Vec<_>>(),
        [("a".into(), "1".into()), ("b\"".into(), "2".into())]
    );
    for end in 0..text.len() {
        let cut = Reader::new(&text[..end]);
        let _ = (
            cut.text_at("spec.key<"),
            cut.text_at("spec.list.1.ip"),
            cut.label("b\""),
            cut.labels().count(),
        );
    }
}

#[test]
fn canonical_objects_are_recognized() {
    let deep = |levels: usize| {
        format!(
            "{}{}",
            r#"{"f:a":"#.repeat(levels - 1) + "{",
            "}".repeat(levels)
        )
    };
    for (text, want) in [
        (r#"{"f:a":{".":{},"k:{\"x\":\"a b\"}":{}},"v:1":{}}"#, true),
        (deep(Map::MAX_RAW_DEPTH).as_str(), true),
        (deep(Map::MAX_RAW_DEPTH + 1).as_str(), false),
        (r#"{"f:a": {}}"#, false),
        (r#"{"f:a":1.0}"#, false),
        (r#"{"f:a":null}"#, false),
        (r#"{"f:<":{}}"#, false),
        (r#"{"f:\u0041":{}}"#, false),
        (r#"{"f:é":{}}"#, false),
        ("[]", false),
    ] {
        let found = Document::new(text.as_bytes())
            .expect("JSON")
            .canonical_object();
        assert_eq!(found, want.then_some(text));
        if let Some(text) = found {
            let (value, _) = parse(text.as_bytes()).expect("JSON");
            assert_eq!(text_of(&value), text);
        }
    }
}

#[test]
fn issues_are_bounded() {
    let crd = builtin()
        .get(&Gvk::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        ))
        .expect("built in");
    let schema = |inner: &str| {
        format!(
            "{{\"spec\":{{\"versions\":[{{\"name\":\"v1\",\"schema\":{{\"openAPIV3Schema\":{inner}}}}}]}}}}"
        )
    };
    // The same unknown field, below a key as long as half a body.
    let below = format!(
        "{{\"properties\":{{\"{}\":{{{}}}}}}}",
        "k".repeat(500_000),
        vec!["\"x\":1"; 100_000].join(",")
    );
    let decoded = decode(schema(&below).as_bytes(), crd).expect("decodes");
    assert_eq!(decoded.issues.len(), 1);
    // A million values of a wrong type, deep inside.
    let open = "{\"properties\":{\"a\":".repeat(2_000);
    let deep = format!(
        "{open}{{\"required\":[{}]}}{}",
        vec!["1"; 200_000].join(","),
        "}}".repeat(2_000)
    );
    on_deep_stack(|| {
        let refused = decode(schema(&deep).as_bytes(), crd).expect_err("numbers are no strings");
        assert!(
            refused
                .0
                .starts_with("json: cannot unmarshal number into Go struct field"),
            "{:.100}",
            refused.0
        );
    });
    let twice = format!(
        "{{\"{}\":{{{}}}}}",
        "k".repeat(500_000),
        vec!["\"x\":1"; 100_000].join(",")
    );
    assert_eq!(parse(twice.as_bytes()).expect("parses").1.len(), 1);
    // Messages of one byte each.
    let pod = builtin().get(&Gvk::new("", "v1", "Pod")).expect("built in");
    let empty = format!(
        "{{\"spec\":{{\"containers\":[{}]}}}}",
        vec!["{}"; 900_000].join(",")
    );
    assert_eq!(
        decode(empty.as_bytes(), pod).map(drop),
        Err(DecodeError::new("the object has too many fields"))
    );
}
