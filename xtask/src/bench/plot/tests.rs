use super::*;

#[test]
fn every_point_is_inside_the_axes() {
    let curve = |points: &[(f64, f64)]| Curve {
        name: "one",
        colour: "#000",
        points: points.to_vec(),
    };
    let chart = Chart {
        title: "chart".to_owned(),
        x_name: "x",
        y_name: "y",
        curves: vec![
            curve(&[(0.0, 173.0), (8000.0, 26.0)]),
            curve(&[(0.0, 99.0)]),
        ],
    };
    assert_eq!(chart.extent(), (8000.0, 200.0));
    let svg = chart.svg();
    assert_eq!(svg.matches("<circle").count(), 3);
    assert!(svg.contains(">200</text>") && svg.contains(">8000</text>"));
    for circle in svg.lines().filter(|line| line.starts_with("<circle")) {
        let number = |name: &str| -> f64 {
            let rest = circle.split_once(&format!("{name}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        assert!((MARGINS[0]..=WIDTH).contains(&number("cx")));
        assert!((MARGINS[2]..=HEIGHT - MARGINS[3]).contains(&number("cy")));
    }
}

#[test]
fn ticks_are_round() {
    assert_eq!(round_up(34.6), 50.0);
    assert_eq!(round_up(0.19), 0.2);
    assert_eq!(round_up(100.0), 100.0);
}
