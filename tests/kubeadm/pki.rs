//! The certificates and keys of a kubeadm cluster, by its names and subjects.

use std::fs;
use std::path::Path;

use kube::config::AuthInfo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::support::etcd::Tls;

/// The subject of a certificate: its common name, its organization, and the names of a server.
struct Subject<'a> {
    name: &'a str,
    group: &'a str,
    hosts: &'a [&'a str],
}

type Authority = Issuer<'static, KeyPair>;

/// Writes everything that `kubeadm init phase certs all` writes; the certificates of kubeconfig
/// files beside them.
pub fn make(dir: &Path) {
    fs::create_dir_all(dir.join("etcd")).expect("a folder");
    let ca = authority(dir, "ca", "kubernetes");
    let etcd = authority(dir, "etcd/ca", "etcd-ca");
    let front_proxy = authority(dir, "front-proxy-ca", "front-proxy-ca");
    let local = ["localhost", "127.0.0.1"];
    let hosts = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "10.96.0.1",
        "192.0.2.10",
        "127.0.0.1",
    ];
    for (authority, file, name, group, hosts) in [
        (&ca, "apiserver", "kube-apiserver", "", &hosts[..]),
        (
            &ca,
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            "kubeadm:cluster-admins",
            &[],
        ),
        (
            &ca,
            "admin",
            "kubernetes-super-admin",
            "system:masters",
            &[],
        ),
        (&ca, "scheduler", "system:kube-scheduler", "", &[]),
        (
            &front_proxy,
            "front-proxy-client",
            "front-proxy-client",
            "",
            &[],
        ),
        (
            &etcd,
            "apiserver-etcd-client",
            "kube-apiserver-etcd-client",
            "",
            &[],
        ),
        (&etcd, "etcd/server", "node", "", &local),
    ] {
        issue(dir, file, authority, &Subject { name, group, hosts });
    }
    let signing = KeyPair::generate().expect("a key");
    write(dir, "sa.key", &signing.serialize_pem());
    write(dir, "sa.pub", &signing.public_key_pem());
}

/// The files that etcd itself is started with.
pub fn etcd(dir: &Path) -> Tls {
    Tls {
        ca: dir.join("ca.crt"),
        cert: dir.join("server.crt"),
        key: dir.join("server.key"),
    }
}

/// A client with one of the certificates, who trusts the cluster's authority alone.
pub fn client(root: &Path, port: u16, name: &str) -> kube::Client {
    let file = |name: String| root.join("pki").join(name).display().to_string();
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().expect("a URL"));
    config.root_cert = Some(vec![
        CertificateDer::from_pem_file(root.join("pki/ca.crt"))
            .expect("the CA")
            .to_vec(),
    ]);
    let (certificate, key) = (file(format!("{name}.crt")), file(format!("{name}.key")));
    config.auth_info = AuthInfo {
        client_certificate: Some(certificate),
        client_key: Some(key),
        ..AuthInfo::default()
    };
    kube::Client::try_from(config).expect("a client")
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("written");
}

fn authority(dir: &Path, file: &str, name: &str) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
    ];
    write(
        dir,
        &format!("{file}.crt"),
        &params.self_signed(&key).expect("a certificate").pem(),
    );
    write(dir, &format!("{file}.key"), &key.serialize_pem());
    Issuer::new(params, key)
}

fn issue(dir: &Path, file: &str, by: &Authority, subject: &Subject) {
    let key = KeyPair::generate().expect("a key");
    let hosts: Vec<String> = subject.hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).expect("names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, subject.name);
    if !subject.group.is_empty() {
        params
            .distinguished_name
            .push(DnType::OrganizationName, subject.group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !subject.hosts.is_empty() {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    write(
        dir,
        &format!("{file}.crt"),
        &params.signed_by(&key, by).expect("a certificate").pem(),
    );
    write(dir, &format!("{file}.key"), &key.serialize_pem());
}
