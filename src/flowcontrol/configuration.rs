//! FlowSchemas and PriorityLevelConfigurations, read from their objects, and those that there are
//! in any case (apiserver `apis/flowcontrol/bootstrap`).

use super::digest::Distinguisher;
use super::queueset::Queuing;
use super::shuffle_sharding::Dealer;
use crate::meta::{Object, Value, array_at, bool_at, i64_at, str_at};

/// The name of the mandatory flow schema and level of those who are never limited.
pub const EXEMPT: &str = "exempt";
/// The name of the mandatory flow schema and level of all that no other flow schema matches.
pub const CATCH_ALL: &str = "catch-all";
/// The precedence of the mandatory flow schemas.
const EXEMPT_PRECEDENCE: i64 = 1;
const CATCH_ALL_PRECEDENCE: i64 = 10_000;
/// The shares of the mandatory level that all may fall to.
const CATCH_ALL_SHARES: u32 = 5;
/// The shares of a level that does not say how many it has.
const DEFAULT_SHARES: i64 = 30;

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityLevelConfiguration {
    pub name: String,
    pub uid: String,
    pub shares: u32,
    /// The percentage of its seats that other levels may borrow.
    pub lendable_percent: u32,
    /// The percentage of its seats that it may borrow besides; `None` for as many as there are.
    pub borrowing_limit_percent: Option<u32>,
    pub queuing: Queuing,
    pub hand_size: Option<usize>,
}

/// A FlowSchema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSchema {
    pub name: String,
    pub uid: String,
    pub level: String,
    pub precedence: i64,
    pub distinguisher: Distinguisher,
    pub rules: Vec<PolicyRule>,
}

/// Requests of some subjects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyRule {
    pub subjects: Vec<Subject>,
    pub resource_rules: Vec<ResourceRule>,
    pub non_resource_rules: Vec<NonResourceRule>,
}

/// Users that a rule is about; `*` is any.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

/// Requests for resources; a list of `*` alone is any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    /// It matches requests without a namespace.
    pub cluster_scope: bool,
    pub namespaces: Vec<String>,
}

/// Requests for other paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NonResourceRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

impl PriorityLevelConfiguration {
    /// Reads an object; `None` for one that cannot be meant, which does not exist then (apiserver
    /// `queueSetCompleterForPL`).
    pub fn from_object(object: &Object) -> Option<Self> {
        let kind = object.str_at("/spec/type");
        let (exempt, limited) = (object.at("/spec/exempt"), object.at("/spec/limited"));
        let is_exempt = kind == "Exempt";
        let is_sound = is_exempt == exempt.is_some()
            && (kind == "Limited") == limited.is_some()
            && is_exempt == (object.name() == EXEMPT);
        if !is_sound {
            return None;
        }
        let part = limited.or(exempt)?;
        let percent = |name: &str| i64_at(part, name).and_then(|value| u32::try_from(value).ok());
        let default = if is_exempt { 0 } else { DEFAULT_SHARES };
        let shares = i64_at(part, "/nominalConcurrencyShares").unwrap_or(default);
        let (queuing, hand_size) = match limited {
            Some(limited) => queuing(limited)?,
            None => (Queuing::Exempt, None),
        };
        Some(Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            shares: u32::try_from(shares).ok()?,
            lendable_percent: percent("/lendablePercent").unwrap_or(0),
            borrowing_limit_percent: percent("/borrowingLimitPercent"),
            queuing,
            hand_size,
        })
    }

    /// The mandatory levels.
    pub fn mandatory() -> [Self; 2] {
        let level = |name: &str, shares, queuing| Self {
            name: name.to_owned(),
            uid: String::new(),
            shares,
            lendable_percent: 0,
            borrowing_limit_percent: None,
            queuing,
            hand_size: None,
        };
        [
            level(EXEMPT, 0, Queuing::Exempt),
            level(CATCH_ALL, CATCH_ALL_SHARES, Queuing::Reject),
        ]
    }

    pub fn is_exempt(&self) -> bool {
        self.queuing == Queuing::Exempt
    }
}

/// Reads the response to a limit, with the number of queues that a flow is dealt.
fn queuing(limited: &Value) -> Option<(Queuing, Option<usize>)> {
    let part = limited.pointer("/limitResponse/queuing");
    if (str_at(limited, "/limitResponse/type") == "Reject") == part.is_some() {
        return None;
    }
    let Some(part) = part else {
        return Some((Queuing::Reject, None));
    };
    let number = |name: &str| {
        let value = i64_at(part, name).unwrap_or(0);
        usize::try_from(value).ok()
    };
    let (queues, hand) = (number("/queues")?, number("/handSize")?);
    let queue_length_limit = number("/queueLengthLimit")?;
    let dealer = Dealer::new(queues, hand)?;
    let queuing = Queuing::Queue {
        queues,
        queue_length_limit,
        dealer,
    };
    Some((queuing, Some(hand)))
}

impl FlowSchema {
    pub fn from_object(object: &Object) -> Self {
        let distinguisher = match object.str_at("/spec/distinguisherMethod/type") {
            "ByUser" => Distinguisher::ByUser,
            "ByNamespace" => Distinguisher::ByNamespace,
            _ => Distinguisher::None,
        };
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            level: object
                .str_at("/spec/priorityLevelConfiguration/name")
                .to_owned(),
            precedence: object.i64_at("/spec/matchingPrecedence").unwrap_or(0),
            distinguisher,
            rules: object.array_at("/spec/rules").iter().map(rule).collect(),
        }
    }

    /// The mandatory flow schema of administrators.
    pub fn exempt() -> Self {
        let masters = Subject::Group(crate::auth::MASTERS.to_owned());
        Self::everything(
            EXEMPT,
            EXEMPT_PRECEDENCE,
            Distinguisher::None,
            vec![masters],
        )
    }

    /// The mandatory flow schema of all others.
    pub fn catch_all() -> Self {
        let groups = [crate::auth::UNAUTHENTICATED, crate::auth::AUTHENTICATED];
        let subjects = groups.map(|name| Subject::Group(name.to_owned())).to_vec();
        Self::everything(
            CATCH_ALL,
            CATCH_ALL_PRECEDENCE,
            Distinguisher::ByUser,
            subjects,
        )
    }

    fn everything(
        name: &str,
        precedence: i64,
        distinguisher: Distinguisher,
        subjects: Vec<Subject>,
    ) -> Self {
        let any = || vec!["*".to_owned()];
        Self {
            name: name.to_owned(),
            uid: String::new(),
            level: name.to_owned(),
            precedence,
            distinguisher,
            rules: vec![PolicyRule {
                subjects,
                resource_rules: vec![ResourceRule {
                    verbs: any(),
                    groups: any(),
                    resources: any(),
                    cluster_scope: true,
                    namespaces: any(),
                }],
                non_resource_rules: vec![NonResourceRule {
                    verbs: any(),
                    paths: any(),
                }],
            }],
        }
    }
}

fn rule(value: &Value) -> PolicyRule {
    PolicyRule {
        subjects: array_at(value, "/subjects")
            .iter()
            .filter_map(subject)
            .collect(),
        resource_rules: array_at(value, "/resourceRules")
            .iter()
            .map(|rule| ResourceRule {
                verbs: texts(rule, "/verbs"),
                groups: texts(rule, "/apiGroups"),
                resources: texts(rule, "/resources"),
                cluster_scope: bool_at(rule, "/clusterScope"),
                namespaces: texts(rule, "/namespaces"),
            })
            .collect(),
        non_resource_rules: array_at(value, "/nonResourceRules")
            .iter()
            .map(|rule| NonResourceRule {
                verbs: texts(rule, "/verbs"),
                paths: texts(rule, "/nonResourceURLs"),
            })
            .collect(),
    }
}

/// Reads a subject; `None` for one that matches nobody.
fn subject(value: &Value) -> Option<Subject> {
    let name = |part: &str| Some(str_at(value.get(part)?, "/name").to_owned());
    match str_at(value, "/kind") {
        "User" => Some(Subject::User(name("user")?)),
        "Group" => Some(Subject::Group(name("group")?)),
        "ServiceAccount" => Some(Subject::ServiceAccount {
            namespace: str_at(value, "/serviceAccount/namespace").to_owned(),
            name: name("serviceAccount")?,
        }),
        _ => None,
    }
}

fn texts(value: &Value, path: &str) -> Vec<String> {
    let all = array_at(value, path).iter();
    all.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
