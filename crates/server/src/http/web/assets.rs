//! The files of the page, which are those of the folder `assets`.

/// One file.
#[derive(Debug)]
pub(super) struct Asset {
    pub name: &'static str,
    pub text: &'static str,
}

impl Asset {
    /// By the name's end, which the tests hold to be one of these.
    pub fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, end)| end) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The name of this content: FNV-1a over it, in quotes.
    pub fn tag(&self) -> String {
        format!("\"{:016x}\"", api::fnv1a(self.text.bytes()))
    }
}

macro_rules! asset {
    ($name:literal) => {
        Asset {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/", $name)),
        }
    };
}

/// The page itself.
pub(super) const PAGE: Asset = asset!("index.html");

/// The description of the API.
pub(super) const REFERENCE: Asset = asset!("docs.html");

/// What they load, under `/ui/`.
pub(super) const ASSETS: [Asset; 26] = [
    asset!("api.js"),
    asset!("base.css"),
    asset!("calls.js"),
    asset!("chat.js"),
    asset!("conversation.js"),
    asset!("docs.css"),
    asset!("docs.js"),
    asset!("dom.js"),
    asset!("facts.js"),
    asset!("icon.svg"),
    asset!("inline.js"),
    asset!("key.js"),
    asset!("layout.css"),
    asset!("live.js"),
    asset!("main.js"),
    asset!("markdown.js"),
    asset!("messages.css"),
    asset!("messages.js"),
    asset!("run.js"),
    asset!("scroll.js"),
    asset!("settings.js"),
    asset!("sidebar.js"),
    asset!("sse.js"),
    asset!("store.js"),
    asset!("theme.js"),
    asset!("words.js"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");

    #[test]
    fn every_file_of_the_folder_is_served() {
        let files = std::fs::read_dir(FOLDER).unwrap();
        let files: BTreeSet<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        let served = ASSETS.iter().chain([&PAGE, &REFERENCE]).map(|asset| asset.name.to_owned());
        assert_eq!(served.collect::<BTreeSet<String>>(), files);
    }

    #[test]
    fn every_file_has_a_type_of_its_own() {
        for asset in ASSETS.iter().chain([&PAGE, &REFERENCE]) {
            assert!(!asset.content_type().starts_with("text/plain"), "{}", asset.name);
        }
    }

    #[test]
    fn the_tag_is_of_the_content() {
        let tag = |text| Asset { name: "a.js", text }.tag();
        assert_eq!(tag("a"), tag("a"));
        assert_ne!(tag("a"), tag("b"));
    }
}
