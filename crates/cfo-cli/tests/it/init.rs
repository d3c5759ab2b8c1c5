//! Recipes for data: written, printed, used when none is given.

use crate::util::Folder;

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 61 --horizon 0.6 --samples 20 --out data.h5").done();
    folder
}

#[test]
fn a_recipe_for_a_file_is_printed_or_written_and_trains() {
    let folder = prepared();
    let printed = folder.cfo("init data.h5").done().stdout;
    assert!(printed.contains("kind = \"mlp\"") && printed.contains("time = false"), "{printed}");
    let written = folder.cfo("init data.h5 --out own.toml").done();
    assert!(written.stdout.is_empty() && written.stderr.contains("cfo train own.toml"), "{}", written.stderr);
    assert_eq!(std::fs::read_to_string(folder.path("own.toml")).unwrap(), printed);
    let refused = folder.cfo("init data.h5 --out own.toml").ended_with(2);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    folder.cfo("init data.h5 --out own.toml --force").done();
    folder.cfo("train own.toml --data data.h5 --out run --set train.steps=20").done();
}

#[test]
fn data_alone_are_trained_by_the_recipe_for_them() {
    let folder = prepared();
    let trained = folder.cfo("train --data data.h5 --set train.steps=20 --set train.batch=16").done();
    assert!(trained.stderr.contains("cfo init data.h5"), "{}", trained.stderr);
    let kept = std::fs::read_to_string(folder.path("runs/data/recipe.toml")).unwrap();
    assert!(kept.contains("activation = \"silu\"") && kept.contains("# split is not set"), "{kept}");
    let refused = folder.cfo("train").ended_with(2);
    assert!(refused.stderr.contains("--data FILE"), "{}", refused.stderr);
    assert!(folder.cfo("train --help").done().stdout.contains("docs/reference/recipe.md"));
}

#[test]
fn another_kind_of_operator_takes_its_own_defaults() {
    let folder = Folder::new();
    folder.cfo("simulate burgers --grid 33 --frames 11 --samples 10 --out line.h5").done();
    let made = "train --data line.h5 --dry-run --json --set operator.kind=fno --set operator.modes=4";
    let found = folder.cfo(made).done().json();
    assert_eq!(found["operator"], "fno");
}

#[test]
fn what_is_no_trajectory_file_gets_no_recipe() {
    let folder = Folder::new();
    std::fs::write(folder.path("notes.txt"), "nothing").unwrap();
    for line in ["init notes.txt", "init missing.h5", "train --data notes.txt"] {
        let refused = folder.cfo(line).ended_with(2);
        assert!(refused.stdout.is_empty(), "{line}");
    }
    assert_eq!(folder.names(), ["notes.txt"]);
}
