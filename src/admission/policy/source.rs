//! The policies that are in effect: those with bindings, by the resources that their rules name
//! (apiserver `admission/plugin/policy/generic/policy_source.go`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use super::definition::{Binding, Evaluator, Policy};
use crate::admission::observed::{Observer, Tracked};
use crate::meta::Object;

/// A policy with its bindings, by name.
pub struct Hook<E> {
    pub policy: Arc<Policy<E>>,
    pub bindings: Vec<Arc<Binding>>,
}

/// The hooks of one plural, by the names of their policies.
type Bucket<E> = Arc<BTreeMap<String, Arc<Hook<E>>>>;

/// The policies of one kind, and their bindings.
pub struct PolicySource<E> {
    state: RwLock<State<E>>,
}

struct State<E> {
    policies: Tracked<Policy<E>>,
    bindings: Tracked<Binding>,
    /// The names of the bindings of each policy.
    bound: HashMap<String, BTreeMap<String, Arc<Binding>>>,
    /// The hooks that are in effect, by the plurals that the rules name.
    hooks: HashMap<String, Bucket<E>>,
}

/// The two kinds of objects that a source is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Policy,
    Binding,
}

/// One of the two as it is observed.
pub struct PolicyPart<E> {
    pub source: Arc<PolicySource<E>>,
    pub part: Part,
}

impl<E: Evaluator> Observer for PolicyPart<E> {
    fn observe(&self, object: &Object) {
        self.source.observe(self.part, object);
    }

    fn forget(&self, name: &str, revision: i64) {
        self.source.forget(self.part, name, revision);
    }

    fn replace(&self, objects: &[Object], revision: i64) {
        self.source.replace(self.part, objects, revision);
    }
}

impl<E> Default for PolicySource<E> {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                policies: Tracked::default(),
                bindings: Tracked::default(),
                bound: HashMap::new(),
                hooks: HashMap::new(),
            }),
        }
    }
}

impl<E: Evaluator> PolicySource<E> {
    /// Reports whether anything may be in effect for a resource.
    pub fn has_any(&self, plural: &str) -> bool {
        let state = self.state.read();
        !state.hooks.is_empty()
            && (state.hooks.contains_key(plural) || state.hooks.contains_key("*"))
    }

    /// Returns what may be in effect for a resource, in the order of the names of the policies.
    pub fn hooks(&self, plural: &str) -> Vec<Arc<Hook<E>>> {
        let (own, any) = {
            let state = self.state.read();
            let bucket = |plural: &str| state.hooks.get(plural).cloned();
            (bucket(plural), bucket("*"))
        };
        match (own, any) {
            (None, None) => Vec::new(),
            (Some(one), None) | (None, Some(one)) => one.values().cloned().collect(),
            (Some(own), Some(any)) => {
                let mut all: BTreeMap<&String, &Arc<Hook<E>>> = own.iter().collect();
                all.extend(any.iter());
                all.into_values().cloned().collect()
            }
        }
    }
}

impl<E: Evaluator> PolicySource<E> {
    fn observe(&self, part: Part, object: &Object) {
        let revision = object.resource_version().parse().unwrap_or(0);
        let mut state = self.state.write();
        match part {
            Part::Policy => state.observe_policy(object, revision),
            Part::Binding => state.observe_binding(object, revision),
        }
    }

    fn forget(&self, part: Part, name: &str, revision: i64) {
        let mut state = self.state.write();
        match part {
            Part::Policy => state.forget_policy(name, revision),
            Part::Binding => state.forget_binding(name, revision),
        }
    }

    fn replace(&self, part: Part, objects: &[Object], revision: i64) {
        let names: HashSet<&str> = objects.iter().map(Object::name).collect();
        let gone = {
            let state = self.state.read();
            match part {
                Part::Policy => state.policies.missing(&names, revision),
                Part::Binding => state.bindings.missing(&names, revision),
            }
        };
        gone.iter()
            .for_each(|name| self.forget(part, name, revision));
        objects.iter().for_each(|object| self.observe(part, object));
    }
}

impl<E: Evaluator> State<E> {
    fn observe_policy(&mut self, object: &Object, revision: i64) {
        let name = object.name();
        if !self.policies.is_news(name, revision) {
            return;
        }
        let before = self.policies.get(name).cloned();
        let policy = Arc::new(Policy::read(object, before.as_deref()));
        self.policies.insert(name, revision, policy.clone());
        if let Some(before) = before {
            self.take_out(&before, name);
        }
        self.put_in(policy, name);
    }

    fn forget_policy(&mut self, name: &str, revision: i64) {
        if let Some(before) = self.policies.remove(name, revision) {
            self.take_out(&before, name);
        }
    }

    fn observe_binding(&mut self, object: &Object, revision: i64) {
        let name = object.name();
        if !self.bindings.is_news(name, revision) {
            return;
        }
        let binding = Arc::new(Binding::read(object));
        let before = self.bindings.get(name).cloned();
        self.bindings.insert(name, revision, binding.clone());
        if let Some(before) = before.filter(|before| before.policy != binding.policy) {
            self.unbind(&before);
        }
        self.bound
            .entry(binding.policy.clone())
            .or_default()
            .insert(name.to_owned(), binding.clone());
        self.bind_anew(&binding.policy);
    }

    fn forget_binding(&mut self, name: &str, revision: i64) {
        if let Some(before) = self.bindings.remove(name, revision) {
            self.unbind(&before);
        }
    }

    fn unbind(&mut self, binding: &Binding) {
        if let Some(bound) = self.bound.get_mut(&binding.policy) {
            bound.remove(&binding.name);
            if bound.is_empty() {
                self.bound.remove(&binding.policy);
            }
        }
        self.bind_anew(&binding.policy);
    }

    /// Puts a policy into effect with the bindings that it has now.
    fn bind_anew(&mut self, name: &str) {
        if let Some(policy) = self.policies.get(name).cloned() {
            self.take_out(&policy, name);
            self.put_in(policy, name);
        }
    }

    fn put_in(&mut self, policy: Arc<Policy<E>>, name: &str) {
        let Some(bound) = self.bound.get(name) else {
            return;
        };
        let hook = Arc::new(Hook {
            bindings: bound.values().cloned().collect(),
            policy: policy.clone(),
        });
        for plural in plurals(&policy) {
            let bucket = self.hooks.entry(plural.to_owned()).or_default();
            Arc::make_mut(bucket).insert(name.to_owned(), hook.clone());
        }
    }

    fn take_out(&mut self, policy: &Policy<E>, name: &str) {
        for plural in plurals(policy) {
            let Some(bucket) = self.hooks.get_mut(plural) else {
                continue;
            };
            Arc::make_mut(bucket).remove(name);
            if bucket.is_empty() {
                self.hooks.remove(plural);
            }
        }
    }
}

/// The plurals that the rules of a policy name, each once. One that does not say what it is about
/// is about everything: it is told so.
fn plurals<E>(policy: &Policy<E>) -> HashSet<&str> {
    match &policy.spec.constraints {
        Ok(constraints) => constraints.plurals().collect(),
        Err(_) => HashSet::from(["*"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::observed::MAX_GONE;
    use crate::admission::policy::definition::PolicySpec;
    use crate::meta::{Value, json};

    /// Counts nothing: what is compiled is the name of the policy.
    struct Named(String);

    impl Evaluator for Named {
        fn compile(policy: &PolicySpec) -> Self {
            Self(policy.name.clone())
        }
    }

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn policy(name: &str, plural: &str, revision: i64) -> Object {
        object(json!({
            "metadata": {"name": name, "resourceVersion": revision.to_string()},
            "spec": {"matchConstraints": {
                "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{"resources": [plural, format!("{plural}/status")]}],
            }},
        }))
    }

    fn binding(name: &str, policy: &str, revision: i64) -> Object {
        object(json!({
            "metadata": {"name": name, "resourceVersion": revision.to_string()},
            "spec": {"policyName": policy},
        }))
    }

    fn names(source: &PolicySource<Named>, plural: &str) -> Vec<String> {
        let hooks = source.hooks(plural);
        assert_eq!(source.has_any(plural), !hooks.is_empty());
        let name = |hook: &Arc<Hook<Named>>| {
            let bindings: Vec<&str> = hook.bindings.iter().map(|one| one.name.as_str()).collect();
            format!("{} {}", hook.policy.evaluator().0, bindings.join(","))
        };
        hooks.iter().map(name).collect()
    }

    #[test]
    fn policies_are_in_effect_for_the_resources_of_their_rules_while_they_are_bound() {
        let source = PolicySource::<Named>::default();
        source.observe(Part::Policy, &policy("b", "pods", 1));
        source.observe(Part::Policy, &policy("a", "*", 2));
        assert!(names(&source, "pods").is_empty(), "nothing is bound");
        source.observe(Part::Binding, &binding("y", "b", 3));
        source.observe(Part::Binding, &binding("x", "b", 4));
        source.observe(Part::Binding, &binding("z", "a", 5));
        assert_eq!(names(&source, "pods"), ["a z", "b x,y"]);
        assert_eq!(names(&source, "secrets"), ["a z"]);
        source.observe(Part::Policy, &policy("b", "secrets", 6));
        assert_eq!(names(&source, "pods"), ["a z"]);
        assert_eq!(names(&source, "secrets"), ["a z", "b x,y"]);
        source.observe(Part::Binding, &binding("x", "a", 7));
        assert_eq!(names(&source, "secrets"), ["a x,z", "b y"]);
        source.forget(Part::Binding, "y", 8);
        source.forget(Part::Policy, "a", 9);
        assert!(names(&source, "secrets").is_empty());
        assert!(source.state.read().hooks.is_empty());
    }

    #[test]
    fn older_news_of_policies_are_passed_over() {
        let source = PolicySource::<Named>::default();
        source.observe(Part::Binding, &binding("x", "a", 1));
        source.observe(Part::Policy, &policy("a", "pods", 10));
        source.observe(Part::Policy, &policy("a", "secrets", 9));
        assert_eq!(names(&source, "pods"), ["a x"]);
        source.forget(Part::Policy, "a", 12);
        source.observe(Part::Policy, &policy("a", "pods", 10));
        assert!(names(&source, "pods").is_empty());
        source.observe(Part::Policy, &policy("a", "pods", 20));
        source.forget(Part::Policy, "a", 15);
        assert_eq!(names(&source, "pods"), ["a x"], "an older one went");
        // A list from before the policy was made does not know it.
        source.replace(Part::Policy, &[], 19);
        assert_eq!(names(&source, "pods"), ["a x"]);
        source.replace(Part::Policy, &[], 21);
        assert!(names(&source, "pods").is_empty());
    }

    #[test]
    fn a_policy_that_stays_the_same_is_compiled_once() {
        let source = PolicySource::<Named>::default();
        source.observe(Part::Binding, &binding("x", "a", 1));
        source.observe(Part::Policy, &policy("a", "pods", 2));
        let before = source.hooks("pods").remove(0);
        source.observe(Part::Policy, &policy("a", "pods", 3));
        let after = source.hooks("pods").remove(0);
        assert!(std::ptr::eq(
            before.policy.evaluator(),
            after.policy.evaluator()
        ));
    }

    #[test]
    fn ends_are_remembered_up_to_a_bound() {
        let source = PolicySource::<Named>::default();
        for number in 0..2 * MAX_GONE as i64 {
            let name = number.to_string();
            source.observe(Part::Policy, &policy(&name, "pods", number + 1));
            source.forget(Part::Policy, &name, number + 2);
        }
        assert_eq!(source.state.read().policies.known(), MAX_GONE);
    }
}
