use super::*;

#[test]
fn both_versions_tell_their_count() {
    let second = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n";
    assert_eq!(parse_count(second), Some(2));
    let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
    assert_eq!(parse_count(first), Some(7));
    for text in [
        "",
        "oom 3\n",
        "oom_kill\n",
        "oom_kill many\n",
        "oom_kill -1\n",
    ] {
        assert_eq!(parse_count(text), None, "{text:?}");
    }
}

fn paths(groups: &str) -> Vec<String> {
    let files = candidates(groups, Path::new("/cg"));
    files
        .iter()
        .map(|file| file.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_group_of_version_2_is_looked_at_before_the_root() {
    let expected = [
        "/cg/user.slice/relight.service/memory.events",
        "/cg/memory.events",
    ];
    assert_eq!(paths("0::/user.slice/relight.service\n"), expected);
}

#[test]
fn the_memory_controller_of_version_1_is_found_among_others() {
    let groups = "5:devices:/a\n4:cpu,memory:/jobs/7\nnonsense\n1:cpu:/a\n";
    let expected = [
        "/cg/memory/jobs/7/memory.oom_control",
        "/cg/memory/memory.oom_control",
    ];
    assert_eq!(paths(groups), expected);
    assert!(paths("5:devices:/a\n").is_empty());
}
