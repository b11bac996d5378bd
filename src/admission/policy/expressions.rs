//! Compilation of the expressions that both kinds of policies have, and the place where they are
//! evaluated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::admission::cel::{Compiler, Declarations};
use crate::base::blocking::run_future_blocking_if;
use crate::meta::{Value, str_at};

/// The time that a policy may take before it is evaluated beside other requests from then on.
const SLOW: Duration = Duration::from_millis(2);

/// The items of a list of the spec.
pub fn items<'a>(spec: &'a Value, key: &str) -> &'a [Value] {
    spec.get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Declares the variables of a policy.
pub fn declare_variables(compiler: &mut Compiler, spec: &Value, declarations: Declarations) {
    for variable in items(spec, "variables") {
        // What does not compile is told by those who use it.
        let (name, expression) = (str_at(variable, "/name"), str_at(variable, "/expression"));
        let _ = compiler.variable(name, expression, declarations);
    }
}

/// Evaluates a policy, and once it has taken long, beside other requests.
#[derive(Debug, Default)]
pub struct Pace {
    slow: AtomicBool,
}

impl Pace {
    /// Returns what an evaluation gives, and the time that it took.
    pub async fn run<T>(&self, evaluation: impl Future<Output = T>) -> (T, Duration) {
        let begun = Instant::now();
        let slow = self.slow.load(Ordering::Relaxed);
        let result = run_future_blocking_if(slow, evaluation).await;
        let elapsed = begun.elapsed();
        if !slow && elapsed > SLOW {
            self.slow.store(true, Ordering::Relaxed);
        }
        (result, elapsed)
    }
}
