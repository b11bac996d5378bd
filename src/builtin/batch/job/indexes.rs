//! Lists of indexes and intervals of them, such as `1,3-5,7`.

type Interval = (i64, i64);

/// Counts the indexes that a list names; the error describes what is wrong with the list.
///
/// # Errors
/// A description of what is wrong with the list.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for part in text.split(',') {
        let (low, high) = interval(part, completions)?;
        if let Some(previous) = last.filter(|previous| *previous >= low) {
            return Err(format!(
                "non-increasing order, previous: {previous}, current: {low}"
            ));
        }
        total += high - low + 1;
        last = Some(high);
    }
    Ok(total)
}

/// The first index that two lists share. Malformed parts name none.
pub fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<Interval> {
        text.split(',')
            .filter_map(|part| interval(part, completions).ok())
            .collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    loop {
        let (&&one, &&other) = (completed.peek()?, failed.peek()?);
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        if one.0 <= other.0 {
            completed.next()
        } else {
            failed.next()
        };
    }
}

fn interval(text: &str, completions: i64) -> Result<Interval, String> {
    let index = |text: &str| {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions {
            Err(format!("too large index: {text:?}"))
        } else {
            Ok(index)
        }
    };
    match text.split_once('-') {
        None => index(text).map(|index| (index, index)),
        Some((_, rest)) if rest.contains('-') => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
        Some((low, high)) => {
            let (low, high) = (index(low)?, index(high)?);
            if low >= high {
                Err(format!(
                    "non-increasing order, previous: {low}, current: {high}"
                ))
            } else {
                Ok((low, high))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_indexes() {
        let cases: [(&str, Result<i64, &str>); 8] = [
            ("", Ok(0)),
            ("1,3-5,7", Ok(5)),
            ("1,1", Err("non-increasing order, previous: 1, current: 1")),
            ("5-3", Err("non-increasing order, previous: 5, current: 3")),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
            (
                "x",
                Err("cannot convert string to integer for index: \"x\""),
            ),
            ("10", Err("too large index: \"10\"")),
            (
                "1,",
                Err("cannot convert string to integer for index: \"\""),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(
                count_indexes(text, 10),
                want.map_err(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn overlaps() {
        for (completed, failed, want) in [
            ("1,3-5", "2,6", None),
            ("1,3-5", "4", Some(4)),
            ("x,3", "3", Some(3)),
            ("", "1", None),
        ] {
            assert_eq!(overlap(completed, failed, 10), want, "{completed} {failed}");
        }
    }
}
