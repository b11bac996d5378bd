//! Operands of one logical operator as a balanced tree, so that its depth is the logarithm of their
//! number.

use super::super::ast::{Expr, ExprId};
use super::super::macros;

/// Collects operands.
pub struct Balancer {
    function: &'static str,
    terms: Vec<Expr>,
    operators: Vec<ExprId>,
}

impl Balancer {
    pub fn new(function: &'static str, first: Expr) -> Self {
        Self {
            function,
            terms: vec![first],
            operators: Vec::new(),
        }
    }

    /// Adds an operand and the operator before it.
    pub fn add(&mut self, operator: ExprId, term: Expr) {
        self.operators.push(operator);
        self.terms.push(term);
    }

    /// The numbers of the operands.
    pub fn terms(&self) -> Vec<ExprId> {
        self.terms.iter().map(|term| term.id).collect()
    }

    pub fn into_expr(self) -> Expr {
        let mut terms = self.terms.into_iter();
        tree(self.function, &self.operators, &mut terms)
    }
}

/// The tree of the next operands, one more than there are operators.
fn tree(
    function: &'static str,
    operators: &[ExprId],
    terms: &mut impl Iterator<Item = Expr>,
) -> Expr {
    let Some(middle) = operators.get(operators.len() / 2) else {
        return terms
            .next()
            .unwrap_or_else(|| Expr::new(0, super::ExprKind::Unspecified));
    };
    let half = operators.len() / 2;
    let left = tree(function, &operators[..half], terms);
    let right = tree(function, &operators[half + 1..], terms);
    Expr::new(*middle, macros::call(function, vec![left, right]))
}
