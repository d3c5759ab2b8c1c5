//! A page of trajectories, predictions and runs: a single file that needs only a browser.
//!
//! Style and scripts are files beside this one, plain and without a build step; the data are in the page as JSON.

mod document;
mod encode;
mod gather;
mod matching;
mod run;

pub use document::{PageDocument, RunPart};
pub use gather::gather;
pub use matching::{PageSource, about};
pub use run::read as read_run;

const TEMPLATE: &str = include_str!("index.html");
const STYLE: &str = include_str!("style.css");

/// The scripts in the order of their dependencies.
const SCRIPTS: [&str; 10] = [
    include_str!("numbers.js"),
    include_str!("color.js"),
    include_str!("decode.js"),
    include_str!("chart.js"),
    include_str!("image.js"),
    include_str!("space.js"),
    include_str!("parts.js"),
    include_str!("views.js"),
    include_str!("run.js"),
    concat!(include_str!("live.js"), include_str!("main.js")),
];

/// The page of a document.
pub fn render(document: &PageDocument) -> serde_json::Result<String> {
    let data = serde_json::to_string(document)?;
    let parts = [
        ("title", escaped(&document.title)),
        ("style", STYLE.to_string()),
        ("script", SCRIPTS.concat()),
        // Nothing in the data can end the element that holds them.
        ("data", data.replace('<', "\\u003c")),
    ];
    let mut page = String::new();
    let mut rest = TEMPLATE;
    // One pass: inserted text is not searched again.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the template closes every placeholder");
        page.push_str(before);
        let known = parts.iter().find(|(key, _)| *key == name);
        page.push_str(&known.expect("the template has known placeholders only").1);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// Text inside HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names come from files, and cannot be trusted.
    #[test]
    fn no_name_leaves_its_place() {
        let evil = "</script><script>alert(1)</script>{{data}}";
        let document =
            PageDocument { title: evil.into(), notes: vec![evil.into()], ..PageDocument::default() };
        let page = render(&document).unwrap();
        assert!(!page.contains("<script>alert"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
    }

    /// A page refers to nothing outside itself.
    #[test]
    fn a_page_is_one_file() {
        let page = render(&PageDocument::default()).unwrap();
        for outside in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!page.contains(outside), "`{outside}`");
        }
    }
}
