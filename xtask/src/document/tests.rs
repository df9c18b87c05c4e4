use super::*;

#[test]
fn only_what_stands_between_the_markers_is_replaced() {
    let page = "# Page\n<!-- a:begin -->\nold\n<!-- a:end -->\ntail\n";
    assert_eq!(
        with_section(page, "a", "new\n").unwrap(),
        "# Page\n<!-- a:begin -->\nnew\n<!-- a:end -->\ntail\n"
    );
    assert!(with_section(page, "b", "new\n").is_none());
}
