#![expect(clippy::string_slice, reason = "a wrong boundary fails the test")]

use super::{Released, StopMatcher};
use crate::text::random::Random;

/// What a matcher lets out of `text` in total, and the stop it finds: by looking at every
/// beginning of the text from the shortest.
fn naive(stops: &[String], include_stop: bool, text: &str) -> (String, Option<usize>) {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let completed = (0..stops.len())
            .filter(|&index| !stops[index].is_empty() && text[..end].ends_with(&stops[index]))
            .max_by_key(|&index| (stops[index].len(), std::cmp::Reverse(index)));
        if let Some(index) = completed {
            let cut = if include_stop { 0 } else { stops[index].len() };
            return (text[..end - cut].to_owned(), Some(index));
        }
    }
    (text.to_owned(), None)
}

/// The longest end of `text` that begins a stop string without being one.
fn open_end(stops: &[String], text: &str) -> usize {
    (0..=text.len())
        .filter(|&start| text.is_char_boundary(start))
        .map(|start| &text[start..])
        .find(|end| {
            stops
                .iter()
                .any(|stop| stop.starts_with(end) && stop != end)
        })
        .map_or(0, str::len)
}

#[test]
fn any_cut_of_the_text_gives_the_naive_result() {
    let mut random = Random(8);
    let letters = ["a", "b", "ab", "é", "日", "\n"];
    for round in 0..3000 {
        let stops: Vec<String> = (0..random.below(4))
            .map(|_| random.string(&letters, 4))
            .collect();
        let include_stop = random.below(2) == 0;
        let text = random.string(&letters, 20);
        let mut matcher = StopMatcher::new(stops.iter().map(String::as_str), include_stop);
        let mut out = String::new();
        let mut found = None;
        let mut rest = text.as_str();
        while found.is_none() && !rest.is_empty() {
            let cut = (1..=rest.len().min(1 + random.below(5)))
                .rfind(|&cut| rest.is_char_boundary(cut))
                .unwrap_or_else(|| rest.chars().next().unwrap().len_utf8());
            let (chunk, after) = rest.split_at(cut);
            rest = after;
            let Released { text: sent, stop } = matcher.push(chunk);
            out.push_str(&sent);
            found = stop;
            if found.is_none() {
                let pushed = &text[..text.len() - rest.len()];
                assert_eq!(matcher.withheld().len(), open_end(&stops, pushed));
                assert_eq!(format!("{out}{}", matcher.withheld()), pushed);
            }
        }
        if found.is_none() {
            out.push_str(&matcher.finish());
        }
        let expected = naive(&stops, include_stop, &text);
        assert_eq!(
            (out, found),
            expected,
            "round {round}: {stops:?} in {text:?}"
        );
    }
}

fn check(stops: &[&str], include_stop: bool, text: &str, expected: (&str, Option<usize>)) {
    let mut matcher = StopMatcher::new(stops.iter().copied(), include_stop);
    let Released { mut text, stop } = matcher.push(text);
    text.push_str(&matcher.finish());
    assert_eq!((text.as_str(), stop), expected);
}

#[test]
fn the_first_completed_stop_wins_and_the_longest_of_several() {
    check(&["bc", "abcd"], false, "xabcd", ("xa", Some(0)));
    check(&["c", "bc", "abc"], false, "xabc", ("x", Some(2)));
    check(&["END"], true, "to the END of it", ("to the END", Some(0)));
    check(&["END"], false, "to the EN", ("to the EN", None));
    check(&["aab"], false, "aaab", ("a", Some(0)));
    check(&["", "é"], false, "café au", ("caf", Some(1)));
}
