//! The test of each flag that has an effect: one that fails if the flag is ignored.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::config::Config;
use super::flags::{Command, Effect, FlagError, Kind, all, parse};

/// Servers are started with the flag.
const WIRE: &str = "tests/attacks/flags.rs";
const CONNECTIONS: &str = "tests/attacks/connections.rs";
const IDENTITY: &str = "tests/attacks/identity.rs";
const OVERLOAD: &str = "tests/attacks/overload.rs";
const AGGREGATION: &str = "tests/attacks/aggregation.rs";
const HONESTY: &str = "tests/attacks/honesty.rs";
/// Every flag of the manifest is passed, and what it means is seen.
const MANIFEST: &str = "tests/kubeadm/main.rs";
const STARTS: &str = "the_manifest_starts_a_server_that_its_probes_find_well";
const METRICS: &str = "tests/attacks/metrics.rs";
const ETCD: &str = "tests/attacks/etcd_flags.rs";
const AUTHORIZATION: &str = "tests/attacks/authorization_webhooks.rs";
const BY_FLAGS: &str = "the_webhook_of_the_flags_gets_reviews_of_their_version";
const ENCRYPTION: &str = "tests/attacks/encryption.rs";
const AUDIT: &str = "tests/attacks/audit.rs";
const OIDC: &str = "tests/attacks/oidc.rs";
const OPENID_FLAGS: &str = "the_flags_of_openid_are_obeyed";
const TOKENS: &str = "tests/attacks/token_webhook.rs";
const PEERS: &str = "tests/peers.rs";
const STREAMS: &str = "tests/streams/logs.rs";
/// The typed value is checked here; its use is checked by the compiler (fields of [`Config`] that
/// are never read are dead code).
const HERE: &str = "src/options/flag_coverage.rs";
const TYPED: &str = "values_that_only_take_time_to_see_are_in_the_configuration";

/// Flag, file, test.
#[rustfmt::skip]
const TESTS: &[(&str, &str, &str)] = &[
    ("admission-control-config-file", "tests/attacks/pod_security.rs", "defaults_and_exemptions_come_from_the_configuration_file"),
    ("advertise-address", PEERS, "servers_are_endpoints_while_they_live"),
    ("aggregator-reject-forwarding-redirect", AGGREGATION, "redirects_are_passed_on_if_the_flag_says_so"),
    ("allow-metric-labels", METRICS, "the_flags_of_metrics_are_obeyed"),
    ("allow-metric-labels-manifest", METRICS, "values_that_metrics_tell_apart_come_from_a_file"),
    ("allow-privileged", HONESTY, "privileged_containers_need_the_flag"),
    ("anonymous-auth", WIRE, "authentication_and_authorization_flags_are_obeyed"),
    ("api-audiences", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("audit-log-batch-buffer-size", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-batch-max-size", AUDIT, "logs_have_the_form_of_the_flags"),
    ("audit-log-batch-max-wait", AUDIT, "logs_have_the_form_of_the_flags"),
    ("audit-log-batch-throttle-burst", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-batch-throttle-enable", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-batch-throttle-qps", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-compress", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-format", AUDIT, "logs_have_the_form_of_the_flags"),
    ("audit-log-maxage", AUDIT, "logs_are_rotated_without_loss"),
    ("audit-log-maxbackup", AUDIT, "logs_are_rotated_without_loss"),
    ("audit-log-maxsize", AUDIT, "logs_are_rotated_without_loss"),
    ("audit-log-mode", AUDIT, "a_full_disk_refuses_requests_in_strict_mode_alone"),
    ("audit-log-path", AUDIT, "requests_become_the_events_of_the_policy"),
    ("audit-log-truncate-enabled", AUDIT, "logs_have_the_form_of_the_flags"),
    ("audit-log-truncate-max-batch-size", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-log-truncate-max-event-size", AUDIT, "logs_have_the_form_of_the_flags"),
    ("audit-log-version", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-policy-file", AUDIT, "requests_become_the_events_of_the_policy"),
    ("audit-webhook-batch-buffer-size", AUDIT, "a_webhook_that_hangs_delays_nobody_in_batch_mode"),
    ("audit-webhook-batch-max-size", AUDIT, "a_webhook_gets_lists_of_events_again_if_it_fails"),
    ("audit-webhook-batch-max-wait", AUDIT, "a_webhook_gets_lists_of_events_again_if_it_fails"),
    ("audit-webhook-batch-throttle-burst", AUDIT, "a_webhook_that_hangs_delays_nobody_in_batch_mode"),
    ("audit-webhook-batch-throttle-enable", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-webhook-batch-throttle-qps", AUDIT, "a_webhook_that_hangs_delays_nobody_in_batch_mode"),
    ("audit-webhook-config-file", AUDIT, "a_webhook_gets_lists_of_events_again_if_it_fails"),
    ("audit-webhook-initial-backoff", AUDIT, "a_webhook_gets_lists_of_events_again_if_it_fails"),
    ("audit-webhook-mode", AUDIT, "a_webhook_that_hangs_delays_nobody_in_batch_mode"),
    ("audit-webhook-truncate-enabled", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-webhook-truncate-max-batch-size", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-webhook-truncate-max-event-size", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("audit-webhook-version", "src/options/audit.rs", "flags_say_where_events_go_and_how"),
    ("authentication-config", OIDC, "issuers_name_users_as_their_mappings_say"),
    ("authentication-token-webhook-cache-ttl", TOKENS, "answers_are_kept_as_long_as_the_flag_says"),
    ("authentication-token-webhook-config-file", TOKENS, "a_webhook_names_the_users_of_tokens"),
    ("authentication-token-webhook-version", TOKENS, "reviews_of_tokens_ask_for_their_audiences"),
    ("authorization-config", AUTHORIZATION, "a_webhook_decides_before_roles_do"),
    ("authorization-mode", WIRE, "authentication_and_authorization_flags_are_obeyed"),
    ("authorization-policy-file", AUTHORIZATION, "policies_of_a_file_allow"),
    ("authorization-webhook-cache-authorized-ttl", AUTHORIZATION, BY_FLAGS),
    ("authorization-webhook-cache-unauthorized-ttl", AUTHORIZATION, BY_FLAGS),
    ("authorization-webhook-config-file", AUTHORIZATION, BY_FLAGS),
    ("authorization-webhook-version", AUTHORIZATION, BY_FLAGS),
    ("bind-address", WIRE, "a_port_is_shared_if_the_flag_says_so"),
    ("cert-dir", WIRE, "a_port_is_shared_if_the_flag_says_so"),
    ("client-ca-file", MANIFEST, STARTS),
    ("controllers", "tests/controllers.rs", "no_controller_runs_unless_the_flag_names_it"),
    ("cors-allowed-origins", WIRE, "browsers_are_told_what_the_flags_say"),
    ("data-dir", "tests/durability.rs", "a_second_server_on_the_same_folder_is_refused"),
    ("default-not-ready-toleration-seconds", WIRE, "new_pods_are_as_the_flags_say"),
    ("default-unreachable-toleration-seconds", WIRE, "new_pods_are_as_the_flags_say"),
    ("delete-collection-workers", HERE, TYPED),
    ("disable-admission-plugins", WIRE, "new_pods_are_as_the_flags_say"),
    ("disable-http2-serving", WIRE, "tls_is_as_the_flags_say"),
    ("disabled-metrics", METRICS, "the_flags_of_metrics_are_obeyed"),
    ("egress-selector-config-file", "tests/streams/egress.rs", "nodes_and_pods_are_reached_through_the_proxy"),
    ("enable-admission-plugins", HONESTY, "a_plugin_that_is_asked_for_runs"),
    ("enable-aggregator-routing", "tests/attacks/webhooks.rs", "services_lead_to_webhooks"),
    ("enable-bootstrap-token-auth", WIRE, "authentication_and_authorization_flags_are_obeyed"),
    ("enable-priority-and-fairness", "tests/attacks/fairness.rs", "the_flag_turns_priority_and_fairness_off"),
    ("decoded-body-memory-bytes", "tests/attacks/memory.rs", "large_bodies_wait_for_memory"),
    ("encoded-object-cache-bytes", "tests/attacks/encodings.rs", "the_budget_of_encoded_objects_is_obeyed_and_shown"),
    ("encryption-provider-config", ENCRYPTION, "every_provider_hides_what_is_stored"),
    ("encryption-provider-config-automatic-reload", ENCRYPTION, "a_changed_configuration_is_brought_into_force"),
    ("endpoint-reconciler-type", PEERS, "servers_are_endpoints_while_they_live"),
    ("etcd-cafile", MANIFEST, STARTS),
    ("etcd-certfile", MANIFEST, STARTS),
    ("etcd-compaction-interval", WIRE, "events_and_history_end_when_the_flags_say"),
    ("etcd-count-metric-poll-period", WIRE, "stored_objects_are_counted_as_often_as_the_flag_says"),
    ("etcd-healthcheck-timeout", ETCD, "each_health_check_has_the_limit_of_its_flag"),
    ("etcd-keyfile", MANIFEST, STARTS),
    ("etcd-prefix", PEERS, "events_are_in_an_etcd_of_their_own"),
    ("etcd-readycheck-timeout", ETCD, "each_health_check_has_the_limit_of_its_flag"),
    ("etcd-servers", MANIFEST, STARTS),
    ("etcd-servers-overrides", PEERS, "events_are_in_an_etcd_of_their_own"),
    ("event-ttl", WIRE, "events_and_history_end_when_the_flags_say"),
    ("external-hostname", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("feature-gates", WIRE, "an_answer_is_compressed_unless_its_gate_is_off"),
    ("goaway-chance", CONNECTIONS, "goaway_chance_moves_clients"),
    ("help", "src/options/flags/mod.rs", "help_and_version_win_over_the_rest"),
    ("http2-max-streams-per-connection", WIRE, "tls_is_as_the_flags_say"),
    ("in-memory", WIRE, "the_embedded_store_is_on_what_the_flags_say"),
    ("kubelet-certificate-authority", STREAMS, "kubelets_must_be_who_they_are_said_to_be"),
    ("kubelet-client-certificate", STREAMS, "kubelets_see_the_client_certificate_and_no_credentials_of_clients"),
    ("kubelet-client-key", STREAMS, "kubelets_see_the_client_certificate_and_no_credentials_of_clients"),
    ("kubelet-preferred-address-types", STREAMS, "kubelets_are_reached_by_the_preferred_address"),
    ("kubernetes-service-node-port", WIRE, "services_are_where_the_flags_say"),
    ("lease-reuse-duration-seconds", ETCD, "leases_are_shared_for_as_long_as_the_flag_says"),
    ("logging-format", WIRE, "logging_flags_are_obeyed"),
    ("max-mutating-requests-inflight", OVERLOAD, "writes_beyond_the_limit_are_turned_away"),
    ("max-requests-inflight", OVERLOAD, "reads_beyond_the_limit_are_turned_away"),
    ("memory-limit-bytes", "tests/attacks/memory.rs", "large_bodies_wait_for_memory"),
    ("min-request-timeout", WIRE, "events_and_history_end_when_the_flags_say"),
    ("oidc-ca-file", OIDC, OPENID_FLAGS),
    ("oidc-client-id", OIDC, OPENID_FLAGS),
    ("oidc-groups-claim", OIDC, OPENID_FLAGS),
    ("oidc-groups-prefix", OIDC, OPENID_FLAGS),
    ("oidc-issuer-url", OIDC, OPENID_FLAGS),
    ("oidc-required-claim", OIDC, OPENID_FLAGS),
    ("oidc-signing-algs", OIDC, OPENID_FLAGS),
    ("oidc-username-claim", OIDC, OPENID_FLAGS),
    ("oidc-username-prefix", OIDC, OPENID_FLAGS),
    ("permit-port-sharing", WIRE, "a_port_is_shared_if_the_flag_says_so"),
    ("profiling", WIRE, "the_verbosity_of_a_running_server_can_be_changed"),
    ("proxy-client-cert-file", AGGREGATION, "the_certificate_for_other_servers_is_that_of_the_flags"),
    ("proxy-client-key-file", AGGREGATION, "the_certificate_for_other_servers_is_that_of_the_flags"),
    ("quota-backend-bytes", "tests/commands/space.rs", "a_full_store_takes_deletions_only_until_there_is_room"),
    ("request-body-memory-bytes", HERE, TYPED),
    ("request-timeout", OVERLOAD, "missing_body_ends_with_the_request_timeout"),
    ("requestheader-allowed-names", MANIFEST, STARTS),
    ("requestheader-client-ca-file", MANIFEST, STARTS),
    ("requestheader-extra-headers-prefix", IDENTITY, "a_front_proxy_speaks_in_the_headers_of_the_flags"),
    ("requestheader-group-headers", MANIFEST, STARTS),
    ("requestheader-uid-headers", IDENTITY, "a_front_proxy_speaks_in_the_headers_of_the_flags"),
    ("requestheader-username-headers", MANIFEST, STARTS),
    ("runtime-config", HONESTY, "disabled_versions_are_absent_everywhere"),
    ("secure-port", WIRE, "a_port_is_shared_if_the_flag_says_so"),
    ("service-account-extend-token-expiration", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("service-account-issuer", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("service-account-jwks-uri", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("service-account-key-file", MANIFEST, STARTS),
    ("service-account-lookup", WIRE, "tokens_of_secrets_are_looked_up_unless_the_flag_is_off"),
    ("service-account-max-token-expiration", WIRE, "tokens_of_service_accounts_are_as_the_flags_say"),
    ("service-account-signing-endpoint", "tests/attacks/external_signer.rs", "a_plugin_signs_tokens_and_knows_their_keys"),
    ("service-account-signing-key-file", MANIFEST, STARTS),
    ("service-cluster-ip-range", WIRE, "services_are_where_the_flags_say"),
    ("service-node-port-range", WIRE, "services_are_where_the_flags_say"),
    ("show-hidden-metrics-for-version", METRICS, "the_flags_of_metrics_are_obeyed"),
    ("shutdown-delay-duration", WIRE, "a_server_serves_on_for_as_long_as_the_flag_says"),
    ("shutdown-send-retry-after", "tests/attacks/leaving.rs", "new_requests_are_sent_elsewhere_while_others_finish"),
    ("shutdown-watch-termination-grace-period", CONNECTIONS, "watches_end_when_the_server_does"),
    ("snapshot-dir", "tests/commands/snapshots.rs", "a_server_takes_snapshots_by_itself"),
    ("snapshot-interval", "tests/commands/snapshots.rs", "a_server_takes_snapshots_by_itself"),
    ("snapshot-retention", "tests/commands/snapshots.rs", "a_server_takes_snapshots_by_itself"),
    ("storage-initialization-timeout", WIRE, "a_store_that_does_not_come_is_waited_for_as_long_as_the_flag_says"),
    ("strict-transport-security-directives", WIRE, "browsers_are_told_what_the_flags_say"),
    ("tls-cert-file", MANIFEST, STARTS),
    ("tls-cipher-suites", WIRE, "tls_is_as_the_flags_say"),
    ("tls-curve-preferences", WIRE, "tls_is_as_the_flags_say"),
    ("tls-min-version", WIRE, "tls_is_as_the_flags_say"),
    ("tls-private-key-file", MANIFEST, STARTS),
    ("tls-sni-cert-key", WIRE, "tls_is_as_the_flags_say"),
    ("token-auth-file", WIRE, "authentication_and_authorization_flags_are_obeyed"),
    ("tracing-config-file", "tests/attacks/traces.rs", "spans_of_a_create_reach_the_collector"),
    ("v", WIRE, "logging_flags_are_obeyed"),
    ("version", "src/options/flags/mod.rs", "help_and_version_win_over_the_rest"),
    ("watch-cache", WIRE, "events_and_history_end_when_the_flags_say"),
    ("watch-cache-sizes", WIRE, "resources_without_a_watch_cache_are_read_from_etcd"),
    ("unsafe-no-fsync", WIRE, "the_embedded_store_is_on_what_the_flags_say"),
    ("worker-threads", WIRE, "worker_threads_follow_the_flag_only"),
];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .unwrap_or_else(|why| panic!("{file}: {why}"))
}

#[test]
fn every_flag_with_an_effect_has_a_test_that_sees_it() {
    let used: BTreeSet<&str> = all()
        .filter(|flag| flag.effect == Effect::Used)
        .map(|flag| flag.name)
        .collect();
    let tested: BTreeSet<&str> = TESTS.iter().map(|(flag, ..)| *flag).collect();
    let untested: Vec<_> = used.difference(&tested).collect();
    assert!(
        untested.is_empty(),
        "no test shows that these are obeyed: {untested:?}"
    );
    let without_effect: Vec<_> = tested.difference(&used).collect();
    assert!(
        without_effect.is_empty(),
        "these have no effect, says the table: {without_effect:?}"
    );
    for (flag, file, test) in TESTS {
        let text = read(file);
        assert!(
            text.contains(&format!("fn {test}(")),
            "{flag}: there is no {test} in {file}"
        );
        let named = [
            format!("--{flag}="),
            format!("--{flag}\""),
            format!("flag(\"{flag}\","),
        ];
        let shared = if *file == MANIFEST {
            read("tests/kubeadm/kube-apiserver.yaml")
        } else {
            read("tests/support/mod.rs")
        };
        assert!(
            named
                .iter()
                .any(|name| text.contains(name) || shared.contains(name)),
            "{file} does not pass --{flag}"
        );
    }
}

#[test]
fn ignored_and_refused_flags_give_a_reason() {
    for flag in all() {
        assert!(!flag.text.is_empty(), "{}", flag.name);
    }
}

#[test]
fn negative_durations_are_refused() {
    let durations =
        all().filter(|flag| flag.kind == Kind::Duration && flag.effect != Effect::Refused);
    for name in durations.map(|flag| flag.name) {
        let error = config(&[&format!("--{name}=-1s")]).expect_err(name);
        assert_eq!(
            error.to_string(),
            format!("--{name} can not be a negative value")
        );
    }
}

fn config(args: &[&str]) -> Result<Config, FlagError> {
    match parse(args.iter().map(ToString::to_string))? {
        Command::Run(flags) => Config::from_flags(&flags),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_that_only_take_time_to_see_are_in_the_configuration() {
    let given = config(&[
        "--delete-collection-workers=7",
        "--encoded-object-cache-bytes=1048576",
        "--etcd-healthcheck-timeout=3s",
        "--etcd-readycheck-timeout=4s",
        "--lease-reuse-duration-seconds=5",
        "--request-body-memory-bytes=2097152",
        "--requestheader-extra-headers-prefix=X-Extra-",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--service-account-lookup=false",
        "--watch-cache-sizes=pods#0,deployments.apps#0,secrets#100",
        "--worker-threads=2",
    ])
    .expect("understood");
    let seconds = Duration::from_secs;
    assert_eq!(
        (given.storage.health_timeout, given.storage.ready_timeout),
        (seconds(3), seconds(4))
    );
    assert_eq!(given.storage.lease_reuse, seconds(5));
    assert_eq!(
        given.authentication.request_header.extra_prefixes,
        ["X-Extra-"]
    );
    assert_eq!(
        given.authentication.request_header.uid_headers,
        ["X-Remote-Uid"]
    );
    assert_eq!(given.requests.delete_collection_workers, 7);
    assert!(!given.service_accounts.lookup);
    assert_eq!(given.memory.encoded_objects, 1 << 20);
    assert_eq!(given.memory.bodies, 2 << 20);
    assert_eq!(given.storage.uncached, ["pods", "deployments.apps"]);
    assert_eq!(given.worker_threads, Some(2));
}
