//! The files of the page, which are those of the folder `assets`.

/// One file.
#[derive(Debug)]
pub(super) struct Asset {
    pub name: &'static str,
    pub bytes: &'static [u8],
}

impl Asset {
    /// By the name's end.
    pub fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, end)| end) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("woff2") => "font/woff2",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The name of this content: FNV-1a over it, in quotes.
    pub fn tag(&self) -> String {
        format!("\"{:016x}\"", api::fnv1a(self.bytes.iter().copied()))
    }
}

macro_rules! asset {
    ($name:literal) => {
        Asset {
            name: $name,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/", $name)),
        }
    };
}

/// The page itself.
pub(super) const PAGE: Asset = asset!("index.html");

/// The description of the API.
pub(super) const REFERENCE: Asset = asset!("docs.html");

/// What they load, under `/ui/`.
pub(super) const ASSETS: [Asset; 47] = [
    asset!("api.js"),
    asset!("base.css"),
    asset!("calls.js"),
    asset!("chat.js"),
    asset!("code.js"),
    asset!("content.css"),
    asset!("conversation.js"),
    asset!("docs.css"),
    asset!("docs.js"),
    asset!("dom.js"),
    asset!("facts.js"),
    asset!("files.js"),
    asset!("formulas.js"),
    asset!("icon.svg"),
    asset!("key.js"),
    asset!("layout.css"),
    asset!("libraries.js"),
    asset!("live.js"),
    asset!("main.js"),
    asset!("messages.css"),
    asset!("messages.js"),
    asset!("render.js"),
    asset!("run.js"),
    asset!("scroll.js"),
    asset!("settings.js"),
    asset!("settings_form.js"),
    asset!("sidebar.js"),
    asset!("sse.js"),
    asset!("store.js"),
    asset!("theme.js"),
    asset!("transfer.js"),
    asset!("vendor/KaTeX_AMS-Regular.woff2"),
    asset!("vendor/KaTeX_Caligraphic-Regular.woff2"),
    asset!("vendor/KaTeX_Main-Regular.woff2"),
    asset!("vendor/KaTeX_Math-Italic.woff2"),
    asset!("vendor/KaTeX_Size1-Regular.woff2"),
    asset!("vendor/KaTeX_Size2-Regular.woff2"),
    asset!("vendor/KaTeX_Size3-Regular.woff2"),
    asset!("vendor/KaTeX_Size4-Regular.woff2"),
    asset!("vendor/LICENSES.txt"),
    asset!("vendor/highlight.js"),
    asset!("vendor/katex.css"),
    asset!("vendor/katex.js"),
    asset!("vendor/markdown-it.js"),
    asset!("vendor/purify.js"),
    asset!("versions.js"),
    asset!("words.js"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs::DirEntry;
    use std::path::Path;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");

    /// The files below `folder`, whose names begin with `prefix`.
    fn files(folder: &Path, prefix: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let below = |entry: DirEntry| {
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            match entry.path().is_dir() {
                true => files(&entry.path(), &format!("{name}/")),
                false => BTreeSet::from([name]),
            }
        };
        entries.flat_map(below).collect()
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let served = ASSETS.iter().chain([&PAGE, &REFERENCE]).map(|asset| asset.name.to_owned());
        assert_eq!(served.collect::<BTreeSet<String>>(), files(Path::new(FOLDER), ""));
    }

    #[test]
    fn every_file_has_a_type_of_its_own() {
        for asset in ASSETS.iter().chain([&PAGE, &REFERENCE]) {
            let is_text = asset.content_type().starts_with("text/plain");
            assert_eq!(is_text, asset.name.ends_with(".txt"), "{}", asset.name);
        }
    }

    #[test]
    fn the_tag_is_of_the_content() {
        let tag = |bytes| Asset { name: "a.js", bytes }.tag();
        assert_eq!(tag(b"a"), tag(b"a"));
        assert_ne!(tag(b"a"), tag(b"b"));
    }
}
