//! Priority levels: how much of the server a level may take, and what happens to the rest.

use super::status_conditions::{EXEMPT, FLOW_CONTROL, check_conditions};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, text};
use crate::builtin::defaulting::{fill, fill_number, part};
use crate::builtin::resource_traits::ResourceEntry;
use crate::meta::{ErrorList, Map, Object, Path};
use crate::registry::validation::{Fields, one_of};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `prioritylevelconfigurations`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "prioritylevelconfigurations",
    traits: FLOW_CONTROL,
    strategy: &PriorityLevelConfigurationStrategy,
    printer: &PRINTER,
};

/// The maximum number of queues of a level (`priorityLevelConfigurationQueuingMaxQueues`).
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of a hash that cards are dealt from.
const HASH_BITS: i64 = 60;
const NOT_NEGATIVE: &str = "must be a non-negative integer";
const PERCENT: &str = "must be between 0 and 100, inclusive";

pub struct PriorityLevelConfigurationStrategy;

impl Strategy for PriorityLevelConfigurationStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        if let Some(exempt) = part(spec, "exempt") {
            fill(exempt, "nominalConcurrencyShares", 0);
            fill(exempt, "lendablePercent", 0);
        }
        let Some(limited) = part(spec, "limited") else {
            return;
        };
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        if let Some(queuing) =
            part(limited, "limitResponse").and_then(|response| part(response, "queuing"))
        {
            fill_number(queuing, "handSize", 8);
            fill_number(queuing, "queues", 64);
            fill_number(queuing, "queueLengthLimit", 50);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, object);
        check_conditions(&mut errors, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, _old: &Object) -> ErrorList {
        if ctx.subresource != Subresource::Status {
            return self.validate(ctx, object);
        }
        let mut errors = ErrorList::new();
        check_conditions(&mut errors, object);
        errors
    }
}

fn check_spec(errors: &mut ErrorList, object: &Object) {
    let spec = object.section("spec");
    let path = Path::new("spec");
    let kind = spec.str("type");
    if (object.name() == EXEMPT) != (kind == "Exempt") {
        errors.invalid(
            &path.child("type"),
            kind,
            "must be 'Exempt' if and only if `name` is 'exempt'",
        );
    }
    let (exempt, limited) = (spec.map("exempt"), spec.map("limited"));
    match kind {
        "Exempt" => {
            if limited.is_some() {
                errors.forbidden(
                    &path.child("limited"),
                    "must be nil if the type is not Limited",
                );
            }
            if let Some(exempt) = exempt {
                check_shares(errors, &path.child("exempt"), exempt);
                check_percent(errors, &path.child("exempt"), exempt);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            match limited {
                None => errors.required(
                    &path.child("limited"),
                    "must not be empty when type is Limited",
                ),
                Some(limited) => check_limited(errors, &path.child("limited"), limited),
            }
        }
        other => one_of(errors, &path.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn check_shares(errors: &mut ErrorList, path: &Path, level: &Map) {
    let key = "nominalConcurrencyShares";
    if let Some(shares) = level.int(key).filter(|shares| *shares < 0) {
        errors.invalid(&path.child(key), shares, NOT_NEGATIVE);
    }
}

fn check_percent(errors: &mut ErrorList, path: &Path, level: &Map) {
    if let Some(percent) = level
        .int("lendablePercent")
        .filter(|percent| !(0..=100).contains(percent))
    {
        errors.invalid(&path.child("lendablePercent"), percent, PERCENT);
    }
}

fn check_limited(errors: &mut ErrorList, path: &Path, limited: &Map) {
    check_shares(errors, path, limited);
    let response = limited.section("limitResponse");
    let response_path = path.child("limitResponse");
    let queuing_path = response_path.child("queuing");
    match (response.str("type"), response.map("queuing")) {
        ("Reject", Some(_)) => {
            errors.forbidden(
                &queuing_path,
                "must be nil if limited.limitResponse.type is not Limited",
            );
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            errors.required(
                &queuing_path,
                "must not be empty if limited.limitResponse.type is Limited",
            );
        }
        ("Queue", Some(queuing)) => check_queuing(errors, &queuing_path, queuing),
        (other, _) => one_of(
            errors,
            &response_path.child("type"),
            other,
            &["Queue", "Reject"],
        ),
    }
    check_percent(errors, path, limited);
    if let Some(percent) = limited
        .int("borrowingLimitPercent")
        .filter(|percent| *percent < 0)
    {
        errors.invalid(
            &path.child("borrowingLimitPercent"),
            percent,
            format!("if specified, {NOT_NEGATIVE}"),
        );
    }
}

fn check_queuing(errors: &mut ErrorList, path: &Path, queuing: &Map) {
    let number = |key: &str| queuing.int(key).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    let mut refuse =
        |key: &str, value: i64, detail: String| errors.invalid(&path.child(key), value, detail);
    if number("queueLengthLimit") <= 0 {
        refuse(
            "queueLengthLimit",
            number("queueLengthLimit"),
            "must be positive".to_owned(),
        );
    }
    if queues <= 0 {
        refuse("queues", queues, "must be positive".to_owned());
    } else if queues > QUEUES_MAX {
        refuse(
            "queues",
            queues,
            format!("must not be greater than {QUEUES_MAX}"),
        );
    }
    if hand <= 0 {
        refuse("handSize", hand, "must be positive".to_owned());
    } else if hand > queues {
        refuse(
            "handSize",
            hand,
            format!("should not be greater than queues ({queues})"),
        );
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        refuse("handSize", hand, detail);
    }
}

/// The bits of a hash that dealing a hand uses up (apiserver
/// `shufflesharding.RequiredEntropyBits`).
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    (((deck as f64).log2() * hand as f64).ceil()) as i64
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Type", "Exempt or Limited"),
        text(
            "NominalConcurrencyShares",
            "Its share of the server's concurrency",
        ),
        text("Queues", "The number of queues"),
        text("HandSize", "The number of queues a flow may use"),
        text(
            "QueueLengthLimit",
            "The greatest number of requests in a queue",
        ),
        AGE,
    ],
    paths: "spec",
    fill: |row| {
        row.name()
            .text("/spec/type")
            .int_or("/spec/limited/nominalConcurrencyShares", NONE);
        row.int_or("/spec/limited/limitResponse/queuing/queues", NONE)
            .int_or("/spec/limited/limitResponse/queuing/handSize", NONE);
        row.int_or("/spec/limited/limitResponse/queuing/queueLengthLimit", NONE)
            .age();
    },
};
