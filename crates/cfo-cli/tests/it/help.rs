use crate::util::Folder;

/// Help texts are part of the interface: a change is seen in review.
#[test]
fn help_of_every_command() {
    let folder = Folder::new();
    for line in [
        "--help",
        "devices --help",
        "inspect --help",
        "train --help",
        "evaluate --help",
        "predict --help",
        "export --help",
        "view --help",
        "serve --help",
        "bench --help",
        "reproduce --help",
        "simulate --help",
        "simulate lorenz --help",
        "simulate burgers --help",
        "simulate diffusion-reaction --help",
        "simulate shallow-water --help",
        "simulate kuramoto-sivashinsky --help",
        "simulate gray-scott --help",
    ] {
        let name = line.replace("--help", "help").replace(' ', "-");
        insta::assert_snapshot!(name, folder.cfo(line).done().stdout);
    }
}

#[test]
fn wrong_usage_is_refused_with_advice() {
    let folder = Folder::new();
    for line in ["", "simulat lorenz", "devices --jsn", "reproduce", "reproduce spline-oder"] {
        let outcome = folder.cfo(line).ended_with(2);
        assert!(outcome.stdout.is_empty(), "{line}: {}", outcome.stdout);
        assert!(!outcome.stderr.is_empty(), "{line}");
    }
    insta::assert_snapshot!("mistyped-option", folder.cfo("devices --jsn").stderr);
}
