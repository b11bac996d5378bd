//! Calls that stand for other expressions: `has`, comprehensions, and what follows an optional
//! (cel-go `parser/macro.go`, `ext/comprehensions.go`, `cel/library.go`).

use super::ast::{
    ACCUMULATOR, Call, Comprehension, Expr, ExprId, ExprKind, List, Literal, MapEntry, Select,
    Struct, StructField,
};
use super::parser::Positions;

/// The traditional name of the accumulator, which no variable of a macro may have either.
const OLD_ACCUMULATOR: &str = "__result__";
/// The number of nodes up to which macros copy expressions: copies of copies multiply.
const MAX_NODES: usize = 200_000;

/// The expansion of a call: an expression, or an error at a node.
type Expanded = Result<Expr, (ExprId, String)>;

/// A macro: a call of this name with so many arguments, of a member or not.
#[derive(Clone, Copy, Debug)]
pub struct Macro {
    pub name: &'static str,
    pub args: usize,
    pub member: bool,
    pub expand: fn(&mut Factory<'_>, ExprId, Option<Expr>, Vec<Expr>) -> Expanded,
}

/// The macros that Kubernetes has, where expressions may bind names or not.
pub fn of(binds: bool) -> &'static [Macro] {
    match (binds, ALL) {
        (false, [_, rest @ ..]) => rest,
        (_, all) => all,
    }
}

/// All macros; that which binds names comes first.
const ALL: &[Macro] = &[
    member("bind", 3, bind),
    Macro {
        name: "has",
        args: 1,
        member: false,
        expand: has,
    },
    member("all", 2, |f, id, range, args| {
        quantifier(Quantifier::All, f, id, range, args)
    }),
    member("exists", 2, |f, id, range, args| {
        quantifier(Quantifier::Exists, f, id, range, args)
    }),
    member("exists_one", 2, |f, id, range, args| {
        quantifier(Quantifier::ExistsOne, f, id, range, args)
    }),
    member("map", 2, map),
    member("map", 3, map),
    member("filter", 2, filter),
    member("all", 3, |f, id, range, args| {
        quantifier(Quantifier::All, f, id, range, args)
    }),
    member("exists", 3, |f, id, range, args| {
        quantifier(Quantifier::Exists, f, id, range, args)
    }),
    member("existsOne", 3, |f, id, range, args| {
        quantifier(Quantifier::ExistsOne, f, id, range, args)
    }),
    member("exists_one", 3, |f, id, range, args| {
        quantifier(Quantifier::ExistsOne, f, id, range, args)
    }),
    member("transformList", 3, transform_list),
    member("transformList", 4, transform_list),
    member("transformMap", 3, transform_map),
    member("transformMap", 4, transform_map),
    member("transformMapEntry", 3, transform_map_entry),
    member("transformMapEntry", 4, transform_map_entry),
    member("sortBy", 2, sort_by),
    member("optMap", 2, |f, id, target, args| {
        optional(f, id, target, args, true)
    }),
    member("optFlatMap", 2, |f, id, target, args| {
        optional(f, id, target, args, false)
    }),
];

const fn member(
    name: &'static str,
    args: usize,
    expand: fn(&mut Factory<'_>, ExprId, Option<Expr>, Vec<Expr>) -> Expanded,
) -> Macro {
    Macro {
        name,
        args,
        member: true,
        expand,
    }
}

/// A call of a function that is no member.
pub fn call(function: &str, args: Vec<Expr>) -> ExprKind {
    ExprKind::Call(Box::new(Call {
        function: function.to_owned(),
        target: None,
        args,
    }))
}

/// Makes nodes that stand where the macro is called.
#[derive(Debug)]
pub struct Factory<'a> {
    pub positions: &'a mut Positions,
    pub offset: Option<u32>,
}

impl Factory<'_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        Expr::new(self.positions.node(self.offset), kind)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(call(function, args))
    }

    fn member_call(&mut self, function: &str, target: Expr) -> Expr {
        self.node(ExprKind::Call(Box::new(Call {
            function: function.to_owned(),
            target: Some(target),
            args: Vec::new(),
        })))
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List(List {
            elements,
            optional: Vec::new(),
        }))
    }

    /// A copy of an expression with numbers of its own.
    ///
    /// # Errors
    /// The expression would have too many nodes.
    fn copy(&mut self, expr: &Expr) -> Expanded {
        if self.positions.len() > MAX_NODES {
            let message = format!("the expression has over {MAX_NODES} nodes");
            return Err((expr.id, message));
        }
        let id = self.positions.node(self.positions.offset(expr.id));
        let kind = match &expr.kind {
            ExprKind::Unspecified => ExprKind::Unspecified,
            ExprKind::Literal(literal) => ExprKind::Literal(literal.clone()),
            ExprKind::Ident(name) => ExprKind::Ident(name.clone()),
            ExprKind::Select(select) => ExprKind::Select(Box::new(Select {
                operand: self.copy(&select.operand)?,
                field: select.field.clone(),
                test_only: select.test_only,
            })),
            ExprKind::Call(call) => ExprKind::Call(Box::new(Call {
                function: call.function.clone(),
                target: call
                    .target
                    .as_ref()
                    .map(|target| self.copy(target))
                    .transpose()?,
                args: self.copies(&call.args)?,
            })),
            ExprKind::List(list) => ExprKind::List(List {
                elements: self.copies(&list.elements)?,
                optional: list.optional.clone(),
            }),
            ExprKind::Map(entries) => ExprKind::Map(self.copied_entries(entries)?),
            ExprKind::Struct(message) => ExprKind::Struct(self.copied_struct(message)?),
            ExprKind::Comprehension(fold) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&fold.range)?,
                variable: fold.variable.clone(),
                second_variable: fold.second_variable.clone(),
                accumulator: fold.accumulator.clone(),
                init: self.copy(&fold.init)?,
                condition: self.copy(&fold.condition)?,
                step: self.copy(&fold.step)?,
                result: self.copy(&fold.result)?,
            })),
        };
        Ok(Expr::new(id, kind))
    }

    fn copies(&mut self, exprs: &[Expr]) -> Result<Vec<Expr>, (ExprId, String)> {
        exprs.iter().map(|expr| self.copy(expr)).collect()
    }

    fn copied_entries(&mut self, entries: &[MapEntry]) -> Result<Vec<MapEntry>, (ExprId, String)> {
        let copied = entries.iter().map(|entry| {
            Ok(MapEntry {
                id: self.positions.node(self.positions.offset(entry.id)),
                key: self.copy(&entry.key)?,
                value: self.copy(&entry.value)?,
                optional: entry.optional,
            })
        });
        copied.collect()
    }

    fn copied_struct(&mut self, message: &Struct) -> Result<Struct, (ExprId, String)> {
        let fields = message.fields.iter().map(|field| {
            Ok(StructField {
                id: self.positions.node(self.positions.offset(field.id)),
                name: field.name.clone(),
                value: self.copy(&field.value)?,
                optional: field.optional,
            })
        });
        Ok(Struct {
            type_name: message.type_name.clone(),
            fields: fields.collect::<Result<_, _>>()?,
        })
    }
}

/// `cel.bind(name, value, result)`: the result with a name for a value.
fn bind(f: &mut Factory<'_>, id: ExprId, target: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let is_ours = matches!(
        target.as_ref().map(|target| &target.kind),
        Some(ExprKind::Ident(name)) if name == "cel"
    );
    if !is_ours {
        let call = Call {
            function: "bind".to_owned(),
            target,
            args,
        };
        return Ok(Expr::new(id, ExprKind::Call(Box::new(call))));
    }
    let result = args.pop().unwrap_or_else(|| f.accumulator());
    let value = args.pop().unwrap_or_else(|| f.accumulator());
    let name = match args.pop() {
        Some(Expr {
            kind: ExprKind::Ident(name),
            ..
        }) => name,
        other => {
            let message = "cel.bind() variable names must be simple identifiers";
            return Err((other.map_or(id, |other| other.id), message.to_owned()));
        }
    };
    let bound = Comprehension {
        range: f.list(Vec::new()),
        variable: "#unused".to_owned(),
        second_variable: None,
        accumulator: name.clone(),
        init: value,
        condition: f.literal(Literal::Bool(false)),
        step: f.ident(&name),
        result,
    };
    Ok(Expr::new(id, ExprKind::Comprehension(Box::new(bound))))
}

/// `has(operand.field)`.
fn has(_: &mut Factory<'_>, id: ExprId, _: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let arg = args.swap_remove(0);
    match arg.kind {
        ExprKind::Select(mut select) => {
            select.test_only = true;
            Ok(Expr::new(id, ExprKind::Select(select)))
        }
        _ => Err((arg.id, "invalid argument to has() macro".to_owned())),
    }
}

/// The variables of a comprehension: all arguments but those of the loop.
struct Variables {
    first: String,
    second: Option<String>,
}

/// The names that the first arguments are.
fn variables(args: &[Expr], none: &str) -> Result<Variables, (ExprId, String)> {
    let name = |arg: &Expr| match &arg.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err((arg.id, none.to_owned())),
    };
    let names: Vec<String> = args.iter().map(name).collect::<Result<_, _>>()?;
    if let ([first, second], [_, arg]) = (names.as_slice(), args)
        && first == second
    {
        return Err((arg.id, format!("duplicate variable name: {first}")));
    }
    for (name, arg) in names.iter().zip(args) {
        if name == ACCUMULATOR || name == OLD_ACCUMULATOR {
            let message = "iteration variable overwrites accumulator variable";
            return Err((arg.id, message.to_owned()));
        }
    }
    let mut names = names.into_iter();
    Ok(Variables {
        first: names.next().unwrap_or_default(),
        second: names.next(),
    })
}

/// The parts of a comprehension that macros choose.
struct Fold {
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

fn comprehension(id: ExprId, range: Option<Expr>, names: Variables, fold: Fold) -> Expanded {
    let range = range.unwrap_or_else(|| Expr::new(id, ExprKind::Unspecified));
    let comprehension = Comprehension {
        range,
        variable: names.first,
        second_variable: names.second,
        accumulator: ACCUMULATOR.to_owned(),
        init: fold.init,
        condition: fold.condition,
        step: fold.step,
        result: fold.result,
    };
    Ok(Expr::new(
        id,
        ExprKind::Comprehension(Box::new(comprehension)),
    ))
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

/// `range.all(x, predicate)` and the like, also with two variables.
fn quantifier(
    kind: Quantifier,
    f: &mut Factory<'_>,
    id: ExprId,
    range: Option<Expr>,
    mut args: Vec<Expr>,
) -> Expanded {
    let predicate = args.pop().unwrap_or_else(|| f.accumulator());
    let names = variables(&args, "argument must be a simple name")?;
    let accumulator = f.accumulator();
    let fold = match kind {
        Quantifier::All => Fold {
            init: f.literal(Literal::Bool(true)),
            condition: {
                let so_far = f.accumulator();
                f.call("@not_strictly_false", vec![so_far])
            },
            step: f.call("_&&_", vec![accumulator, predicate]),
            result: f.accumulator(),
        },
        Quantifier::Exists => Fold {
            init: f.literal(Literal::Bool(false)),
            condition: {
                let so_far = f.accumulator();
                let none = f.call("!_", vec![so_far]);
                f.call("@not_strictly_false", vec![none])
            },
            step: f.call("_||_", vec![accumulator, predicate]),
            result: f.accumulator(),
        },
        Quantifier::ExistsOne => Fold {
            init: f.literal(Literal::Int(0)),
            condition: f.literal(Literal::Bool(true)),
            step: {
                let one = f.literal(Literal::Int(1));
                let more = f.call("_+_", vec![accumulator, one]);
                let same = f.accumulator();
                f.call("_?_:_", vec![predicate, more, same])
            },
            result: {
                let (count, one) = (f.accumulator(), f.literal(Literal::Int(1)));
                f.call("_==_", vec![count, one])
            },
        },
    };
    comprehension(id, range, names, fold)
}

/// A comprehension that begins with `init` and goes through all of the range, where `filter` holds.
fn gathered(
    f: &mut Factory<'_>,
    id: ExprId,
    range: Option<Expr>,
    names: Variables,
    init: Expr,
    filter: Option<Expr>,
    step: Expr,
) -> Expanded {
    let step = match filter {
        None => step,
        Some(filter) => {
            let same = f.accumulator();
            f.call("_?_:_", vec![filter, step, same])
        }
    };
    let fold = Fold {
        init,
        condition: f.literal(Literal::Bool(true)),
        step,
        result: f.accumulator(),
    };
    comprehension(id, range, names, fold)
}

/// The accumulator with one more element.
fn appended(f: &mut Factory<'_>, element: Expr) -> Expr {
    let (so_far, more) = (f.accumulator(), f.list(vec![element]));
    f.call("_+_", vec![so_far, more])
}

/// `range.map(x, transform)` and `range.map(x, filter, transform)`.
fn map(f: &mut Factory<'_>, id: ExprId, range: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let names = variables(&args[..1], "argument is not an identifier")?;
    let transform = args.pop().unwrap_or_else(|| f.accumulator());
    let filter = (args.len() > 1).then(|| args.swap_remove(1));
    let init = f.list(Vec::new());
    let step = appended(f, transform);
    gathered(f, id, range, names, init, filter, step)
}

/// `range.filter(x, predicate)`.
fn filter(f: &mut Factory<'_>, id: ExprId, range: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let predicate = args.pop().unwrap_or_else(|| f.accumulator());
    let names = variables(&args, "argument is not an identifier")?;
    let init = f.list(Vec::new());
    let element = args.swap_remove(0);
    let step = appended(f, element);
    gathered(f, id, range, names, init, Some(predicate), step)
}

/// The names, filter and transformation of a macro with two variables.
type TwoVariables = (Variables, Option<Expr>, Option<Expr>);

/// Reads the arguments of a macro with two variables.
fn two_variables(mut args: Vec<Expr>) -> Result<TwoVariables, (ExprId, String)> {
    let names = variables(&args[..2], "argument must be a simple name")?;
    let transform = args.pop();
    let filter = (args.len() > 2).then(|| args.swap_remove(2));
    Ok((names, filter, transform))
}

/// `range.transformList(i, x, transform)`, with a filter before `transform` or without.
fn transform_list(
    f: &mut Factory<'_>,
    id: ExprId,
    range: Option<Expr>,
    args: Vec<Expr>,
) -> Expanded {
    let (names, filter, transform) = two_variables(args)?;
    let init = f.list(Vec::new());
    let transform = transform.unwrap_or_else(|| f.accumulator());
    let step = appended(f, transform);
    gathered(f, id, range, names, init, filter, step)
}

/// `range.transformMap(k, v, transform)`.
fn transform_map(
    f: &mut Factory<'_>,
    id: ExprId,
    range: Option<Expr>,
    args: Vec<Expr>,
) -> Expanded {
    let (names, filter, transform) = two_variables(args)?;
    let init = f.node(ExprKind::Map(Vec::new()));
    let (so_far, key) = (f.accumulator(), f.ident(&names.first));
    let transform = transform.unwrap_or_else(|| f.accumulator());
    let step = f.call("cel.@mapInsert", vec![so_far, key, transform]);
    gathered(f, id, range, names, init, filter, step)
}

/// `range.transformMapEntry(k, v, {key: value})`.
fn transform_map_entry(
    f: &mut Factory<'_>,
    id: ExprId,
    range: Option<Expr>,
    args: Vec<Expr>,
) -> Expanded {
    let (names, filter, transform) = two_variables(args)?;
    let init = f.node(ExprKind::Map(Vec::new()));
    let so_far = f.accumulator();
    let transform = transform.unwrap_or_else(|| f.accumulator());
    let step = f.call("cel.@mapInsert", vec![so_far, transform]);
    gathered(f, id, range, names, init, filter, step)
}

/// `target.optMap(x, value)` and `target.optFlatMap(x, optional)`: the value of an optional is
/// bound to a name where there is one.
fn optional(
    f: &mut Factory<'_>,
    id: ExprId,
    target: Option<Expr>,
    mut args: Vec<Expr>,
    wraps: bool,
) -> Expanded {
    let value = args.pop().unwrap_or_else(|| f.accumulator());
    let target = target.unwrap_or_else(|| Expr::new(id, ExprKind::Unspecified));
    let name = match args.first() {
        Some(Expr {
            kind: ExprKind::Ident(name),
            ..
        }) => name.clone(),
        other => {
            let function = if wraps { "optMap" } else { "optFlatMap" };
            let message = format!("{function}() variable name must be a simple identifier");
            return Err((other.map_or(id, |other| other.id), message));
        }
    };
    let copy = f.copy(&target)?;
    let bound = Comprehension {
        range: f.list(Vec::new()),
        variable: "#unused".to_owned(),
        second_variable: None,
        accumulator: name.clone(),
        init: f.member_call("value", copy),
        condition: f.literal(Literal::Bool(false)),
        step: f.ident(&name),
        result: value,
    };
    let bound = f.node(ExprKind::Comprehension(Box::new(bound)));
    let some = if wraps {
        f.call("optional.of", vec![bound])
    } else {
        bound
    };
    let present = f.member_call("hasValue", target);
    let none = f.call("optional.none", Vec::new());
    Ok(Expr::new(id, call("_?_:_", vec![present, some, none])))
}

/// `list.sortBy(x, key)`.
fn sort_by(f: &mut Factory<'_>, id: ExprId, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    const INPUT: &str = "@__sortBy_input__";
    let target = target.unwrap_or_else(|| Expr::new(id, ExprKind::Unspecified));
    let is_sortable = matches!(
        target.kind,
        ExprKind::List(_)
            | ExprKind::Select(_)
            | ExprKind::Ident(_)
            | ExprKind::Comprehension(_)
            | ExprKind::Call(_)
    );
    if !is_sortable {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or \
                       select expression";
        return Err((target.id, message.to_owned()));
    }
    let range = f.ident(INPUT);
    let keys_id = f.positions.node(f.offset);
    let keys = map(f, keys_id, Some(range), args)?;
    let input = f.ident(INPUT);
    let sorted = f.node(ExprKind::Call(Box::new(Call {
        function: "@sortByAssociatedKeys".to_owned(),
        target: Some(input),
        args: vec![keys],
    })));
    let bound = Comprehension {
        range: f.list(Vec::new()),
        variable: "#unused".to_owned(),
        second_variable: None,
        accumulator: INPUT.to_owned(),
        init: target,
        condition: f.literal(Literal::Bool(false)),
        step: f.ident(INPUT),
        result: sorted,
    };
    Ok(Expr::new(id, ExprKind::Comprehension(Box::new(bound))))
}
