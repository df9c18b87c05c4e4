use super::*;

#[test]
fn goals_are_judged_by_ratio_or_by_the_figure() {
    let met = |bound, ours, ratio| judge(Some(bound), ours, ratio).1;
    assert_eq!(met(Bound::Best(1.5), 0.0, Some(1.5)), Some(true));
    assert_eq!(met(Bound::Best(1.5), 0.0, Some(1.49)), Some(false));
    assert_eq!(met(Bound::Best(1.5), 0.0, None), None);
    assert_eq!(met(Bound::Plain(0.97), 0.0, Some(0.96)), Some(false));
    assert_eq!(met(Bound::AtLeast(0.5), 0.6, Some(0.1)), Some(true));
    assert_eq!(met(Bound::Below(3.0), 3.0, None), Some(false));
    assert_eq!(judge(None, 1.0, Some(2.0)), (String::new(), None));
}

#[test]
fn a_dead_peer_leaves_a_word_in_its_cell() {
    let died = Some("died: the connection ended");
    assert_eq!(figure(None, died), "died");
    assert_eq!(figure(Some("12".to_owned()), died), "12, then died");
    assert_eq!(figure(Some("12".to_owned()), None), "12");
    assert_eq!(figure(None, None), "");
}
