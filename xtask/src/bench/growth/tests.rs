use super::*;

#[test]
fn a_line_is_found_again() {
    let points = [(0.0, 1.0), (1000.0, 3.0), (4000.0, 9.0)];
    let line = Line::through(&points).unwrap();
    assert!((line.start - 1.0).abs() < 1e-9 && (line.slope - 0.002).abs() < 1e-12);
    assert!(line.deviation < 1e-9);
    let bent = Line::through(&[(0.0, 1.0), (1.0, 2.0), (2.0, 9.0)]).unwrap();
    assert!(bent.deviation > 0.3);
    assert_eq!(Line::through(&[(1.0, 1.0)]), None);
    assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
}
