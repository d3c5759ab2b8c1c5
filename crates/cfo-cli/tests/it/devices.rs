use crate::util::Folder;

#[test]
fn the_processor_is_always_there() {
    let report = Folder::new().cfo("devices --json").done().json();
    assert_eq!(report["devices"][0]["device"], "cpu");
    assert!(report["devices"][0]["cores"].as_u64().unwrap() > 0);
    assert!(report["cuda"]["available"].is_boolean());
}

#[test]
fn people_get_a_table() {
    let outcome = Folder::new().cfo("devices").done();
    assert!(outcome.stdout.starts_with("device"), "{}", outcome.stdout);
    assert!(outcome.stderr.is_empty());
}
