//! Operators by their precedence, from `||` down to `!` and `-`.

use super::super::ast::Expr;
use super::super::lexer::{Kind, Token};
use super::super::macros;
use super::logic::Balancer;
use super::{FIRST, Parser, Result, Stop, listed};

impl Parser<'_> {
    pub(super) fn or(&mut self) -> Result<Expr> {
        self.logical(Kind::Or, "_||_", Self::and)
    }

    fn and(&mut self) -> Result<Expr> {
        self.logical(Kind::And, "_&&_", Self::relation)
    }

    /// Operands of `||` or `&&`, as a balanced tree.
    fn logical(
        &mut self,
        operator: Kind,
        function: &'static str,
        operand: fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let first = operand(self)?;
        let mut balancer = Balancer::new(function, first);
        while let Some(token) = self.take(operator) {
            let id = self.id(token);
            let next = operand(self)?;
            balancer.add(id, next);
        }
        let parts = balancer.terms();
        let tree = balancer.into_expr();
        self.measured(tree, &parts, false)
    }

    fn relation(&mut self) -> Result<Expr> {
        self.operators(relation_operator, Self::sum)
    }

    fn sum(&mut self) -> Result<Expr> {
        self.operators(sum_operator, Self::product)
    }

    fn product(&mut self) -> Result<Expr> {
        self.operators(product_operator, Self::unary)
    }

    /// Operands of binary operators that group to the left.
    fn operators(
        &mut self,
        function: fn(Kind) -> Option<&'static str>,
        operand: fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut left = operand(self)?;
        let mut count = self.depth;
        while let Some(function) = function(self.peek().kind) {
            count += 1;
            self.check_depth(count)?;
            let token = self.next();
            let id = self.id(token);
            let right = operand(self)?;
            let parts = [left.id, right.id];
            let call = macros::call(function, vec![left, right]);
            left = self.measured(Expr::new(id, call), &parts, true)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr> {
        self.settle(FIRST)?;
        let token = self.peek();
        match token.kind {
            Kind::Not => {
                let count = self.run(Kind::Not);
                if !FIRST.contains(&self.peek().kind) {
                    self.unexpected("extraneous", &listed(FIRST));
                    return Err(Stop);
                }
                self.negated(token, "!_", count)
            }
            Kind::Minus if !self.is_negative_literal() => {
                let count = self.run(Kind::Minus);
                if !FIRST.contains(&self.peek().kind) {
                    let Stop = self.no_alternative(token);
                    self.unexpected("mismatched", &listed(FIRST));
                    return Err(Stop);
                }
                self.negated(token, "-_", count)
            }
            _ => self.member(),
        }
    }

    /// Reports whether a minus and a number follow, which are one constant.
    fn is_negative_literal(&self) -> bool {
        self.is(Kind::Minus) && matches!(self.ahead(1).kind, Kind::Int | Kind::Float)
    }

    fn run(&mut self, kind: Kind) -> usize {
        let begun = self.at;
        while self.take(kind).is_some() {}
        self.at - begun
    }

    fn negated(&mut self, token: Token, function: &str, count: usize) -> Result<Expr> {
        if count.is_multiple_of(2) {
            return self.member();
        }
        let id = self.id(token);
        let operand = self.member()?;
        let parts = [operand.id];
        self.measured(
            Expr::new(id, macros::call(function, vec![operand])),
            &parts,
            false,
        )
    }
}

fn relation_operator(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Equals => "_==_",
        Kind::NotEquals => "_!=_",
        Kind::In => "@in",
        Kind::Less => "_<_",
        Kind::LessEquals => "_<=_",
        Kind::GreaterEquals => "_>=_",
        Kind::Greater => "_>_",
        _ => return None,
    })
}

fn sum_operator(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Plus => Some("_+_"),
        Kind::Minus => Some("_-_"),
        _ => None,
    }
}

fn product_operator(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Star => Some("_*_"),
        Kind::Slash => Some("_/_"),
        Kind::Percent => Some("_%_"),
        _ => None,
    }
}
