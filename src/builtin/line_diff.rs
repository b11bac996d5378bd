//! Unified differences of texts, with the matching of Python's difflib that upstream's library
//! follows: the longest block first, then what is left and right of it.

use std::collections::HashMap;

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// In texts of this many lines, a line that is common is no anchor for a match.
const COMMON_FROM: usize = 200;

#[derive(Clone, Copy, Debug)]
struct Block {
    a: usize,
    b: usize,
    size: usize,
}

/// One stretch of both texts: equal, or what replaces what.
#[derive(Clone, Copy, Debug)]
struct Step {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// The difference of two texts; empty where they are the same.
pub fn unified(a: &str, b: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('\n').collect(), b.split('\n').collect());
    let mut out = String::new();
    for group in groups(&steps(&a, &b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        out.push_str(&format!(
            "@@ -{} +{} @@\n",
            range(first.a.0, last.a.1),
            range(first.b.0, last.b.1)
        ));
        for step in group {
            let mut lines = |sign: char, lines: &[&str]| {
                for line in lines {
                    out.push(sign);
                    out.push_str(line);
                    out.push('\n');
                }
            };
            if step.equal {
                lines(' ', &a[step.a.0..step.a.1]);
            } else {
                lines('-', &a[step.a.0..step.a.1]);
                lines('+', &b[step.b.0..step.b.1]);
            }
        }
    }
    out
}

fn range(from: usize, to: usize) -> String {
    match to - from {
        1 => (from + 1).to_string(),
        0 => format!("{from},0"),
        length => format!("{},{length}", from + 1),
    }
}

/// Returns the positions of each line of `b`, except for lines too common to be of use.
fn positions<'a>(b: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in b.iter().enumerate() {
        positions.entry(line).or_default().push(index);
    }
    if b.len() >= COMMON_FROM {
        positions.retain(|_, at| at.len() <= b.len() / 100 + 1);
    }
    positions
}

/// The longest block of equal lines within both ranges; of several the first in `a`, then in `b`.
fn longest(
    a: &[&str],
    b: &[&str],
    at: &HashMap<&str, Vec<usize>>,
    (alo, ahi): (usize, usize),
    (blo, bhi): (usize, usize),
) -> Block {
    let mut best = Block {
        a: alo,
        b: blo,
        size: 0,
    };
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(ahi).skip(alo) {
        let mut next = HashMap::new();
        for &j in at
            .get(line)
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .filter(|j| (blo..bhi).contains(*j))
        {
            let length = j
                .checked_sub(1)
                .and_then(|before| lengths.get(&before))
                .copied()
                .unwrap_or(0)
                + 1;
            next.insert(j, length);
            if length > best.size {
                best = Block {
                    a: i + 1 - length,
                    b: j + 1 - length,
                    size: length,
                };
            }
        }
        lengths = next;
    }
    while best.a > alo && best.b > blo && a[best.a - 1] == b[best.b - 1] {
        best = Block {
            a: best.a - 1,
            b: best.b - 1,
            size: best.size + 1,
        };
    }
    while best.a + best.size < ahi
        && best.b + best.size < bhi
        && a[best.a + best.size] == b[best.b + best.size]
    {
        best.size += 1;
    }
    best
}

fn steps(a: &[&str], b: &[&str]) -> Vec<Step> {
    let at = positions(b);
    let mut blocks = Vec::new();
    let mut pending = vec![((0, a.len()), (0, b.len()))];
    while let Some(((alo, ahi), (blo, bhi))) = pending.pop() {
        let block = longest(a, b, &at, (alo, ahi), (blo, bhi));
        if block.size > 0 {
            blocks.push(block);
            pending.push(((alo, block.a), (blo, block.b)));
            pending.push(((block.a + block.size, ahi), (block.b + block.size, bhi)));
        }
    }
    blocks.sort_by_key(|block| (block.a, block.b));
    blocks.push(Block {
        a: a.len(),
        b: b.len(),
        size: 0,
    });
    let mut steps: Vec<Step> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for block in blocks {
        if i < block.a || j < block.b {
            steps.push(Step {
                equal: false,
                a: (i, block.a),
                b: (j, block.b),
            });
        }
        (i, j) = (block.a + block.size, block.b + block.size);
        let equal = Step {
            equal: true,
            a: (block.a, i),
            b: (block.b, j),
        };
        match steps
            .last_mut()
            .filter(|last| last.equal && last.a.1 == block.a && last.b.1 == block.b)
        {
            Some(last) => (last.a.1, last.b.1) = (i, j),
            None if block.size > 0 => steps.push(equal),
            None => {}
        }
    }
    steps
}

/// Cuts long equal stretches down to the context of the changes beside them.
fn groups(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut groups = Vec::new();
    let mut group: Vec<Step> = Vec::new();
    let last = steps.len().saturating_sub(1);
    for (index, &step) in steps.iter().enumerate() {
        let length = step.a.1 - step.a.0;
        let head = |step: Step| Step {
            a: (step.a.0, step.a.0 + length.min(CONTEXT)),
            b: (step.b.0, step.b.0 + length.min(CONTEXT)),
            ..step
        };
        let tail = |step: Step| Step {
            a: (step.a.1 - length.min(CONTEXT), step.a.1),
            b: (step.b.1 - length.min(CONTEXT), step.b.1),
            ..step
        };
        match (step.equal, index) {
            (false, _) => group.push(step),
            (true, 0) => group.push(tail(step)),
            (true, index) if index == last => group.push(head(step)),
            (true, _) if length > 2 * CONTEXT => {
                group.push(head(step));
                groups.push(std::mem::take(&mut group));
                group.push(tail(step));
            }
            (true, _) => group.push(step),
        }
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|step| !step.equal));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let cases = [
            ("a\nb\nc", "a\nb\nc", ""),
            ("a\nb\nc", "a\nx\nc", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"),
            ("a", "a\nb", "@@ -1 +1,2 @@\n a\n+b\n"),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\nx",
                "1\n2\n3\n4\n5\n6\n7\n8\n9\ny",
                "@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-x\n+y\n",
            ),
        ];
        for (a, b, want) in cases {
            assert_eq!(unified(a, b), want);
        }
    }
}
