use super::*;

fn parse(line: &str) -> Result<Arguments, String> {
    let words = std::iter::once("relight").chain(line.split_whitespace());
    Arguments::try_parse_from(normalised(words.map(std::ffi::OsString::from)))
        .map_err(|error| error.to_string())
}

fn serve(line: &str) -> ServeArguments {
    match parse(line).unwrap().command {
        Command::Serve(arguments) => arguments,
        other => panic!("not a serve command: {other:?}"),
    }
}

#[test]
fn no_command_means_serve() {
    assert!(serve("").model.source().is_none());
    assert_eq!(
        serve("-m file.gguf").model.source().as_deref(),
        Some("file.gguf")
    );
    assert_eq!(
        serve("serve file.gguf").model.source().as_deref(),
        Some("file.gguf")
    );
}

#[test]
fn short_flags_of_several_letters_are_understood() {
    let arguments = serve("-hf user/repo:Q4_0 -np 3 -ngl 99 -fa -ctk f16 -c 1024 -t 2 --port 0");
    assert_eq!(
        arguments.model.source().as_deref(),
        Some("hf:user/repo:Q4_0")
    );
    let config = arguments.engine.config("file".into(), None);
    assert_eq!(
        (config.slots, config.context_tokens, config.threads),
        (3, Some(1024), Some(2))
    );
    let inert: Vec<&str> = arguments
        .engine
        .inert()
        .into_iter()
        .map(|(flag, _)| flag)
        .collect();
    assert_eq!(inert, ["-ngl", "-fa"]);
}

#[test]
fn an_unknown_flag_is_an_error_with_the_nearest_name() {
    let error = parse("serve --prot 80").unwrap_err();
    assert!(error.contains("--port"), "{error}");
}

#[test]
fn values_out_of_range_name_the_flag_and_the_range() {
    let error = parse("serve -np 0").unwrap_err();
    assert!(
        error.contains("--parallel") && error.contains("1..=256"),
        "{error}"
    );
    assert!(parse("serve -ctk q4_0").unwrap_err().contains("f16"));
}

#[test]
fn long_aliases_of_other_servers_are_understood() {
    let arguments = serve("--max-model-len 2048 --max-num-seqs 5 --served-model-name m");
    assert_eq!(arguments.engine.ctx_size, Some(2048));
    assert_eq!(
        (arguments.engine.parallel, arguments.alias),
        (5, vec!["m".to_owned()])
    );
}

#[test]
fn loopback_is_told_from_the_rest() {
    for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
        assert!(is_loopback(host), "{host}");
    }
    for host in ["0.0.0.0", "::", "192.168.0.1", "example.org"] {
        assert!(!is_loopback(host), "{host}");
    }
}
