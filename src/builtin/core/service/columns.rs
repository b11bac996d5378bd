//! Columns of the Table.

use crate::builtin::columns::{
    AGE, ColumnPrinter, NAME, NONE, SELECTOR, ingress_points, join, text,
};
use crate::meta::{Object, Value, i64_at, str_at};

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Type", "How the service is reached"),
        text("Cluster-IP", "Its address inside the cluster"),
        text("External-IP", "Its addresses outside the cluster"),
        text("Port(s)", "The ports it listens on"),
        AGE,
        SELECTOR,
    ],
    paths: "spec.type spec.clusterIPs spec.externalIPs spec.externalName spec.ports \
        spec.selector status.loadBalancer",
    fill: |row| {
        let object = row.object;
        let ports = service_ports(object);
        row.name()
            .text("/spec/type")
            .text_or("/spec/clusterIPs/0", NONE)
            .cell(external_ips(object));
        row.cell(if ports.is_empty() { NONE } else { &ports })
            .age()
            .labels("/spec/selector");
    },
};

fn service_ports(object: &Object) -> String {
    let ports = object.array_at("/spec/ports").iter().map(|port| {
        let (number, protocol) = (
            i64_at(port, "/port").unwrap_or(0),
            str_at(port, "/protocol"),
        );
        match i64_at(port, "/nodePort") {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

fn external_ips(object: &Object) -> String {
    let external = join(
        object
            .array_at("/spec/externalIPs")
            .iter()
            .filter_map(Value::as_str),
        ",",
    );
    let or_else = |text: &str, empty: &str| {
        if text.is_empty() {
            empty.to_owned()
        } else {
            text.to_owned()
        }
    };
    match object.str_at("/spec/type") {
        "ClusterIP" | "NodePort" => or_else(&external, NONE),
        "LoadBalancer" => match (ingress_points(object), external) {
            (balancer, external) if external.is_empty() => or_else(&balancer, "<pending>"),
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => object.str_at("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}
