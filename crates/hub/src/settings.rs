//! Settings of the hub and its cache, from the environment variables of Hugging Face's tools.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// How to reach a hub.
#[derive(Clone)]
pub struct HubSettings {
    /// Address of the hub, without a slash at the end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Folder of the cache (`HF_HUB_CACHE`, or `hub` under `HF_HOME`).
    pub cache: PathBuf,
    /// Token for gated and private repositories (`HF_TOKEN`). Sent to the endpoint only.
    pub token: Option<String>,
    /// Use the cache alone (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// Pause before the second attempt; doubled for each further one.
    pub retry_pause: Duration,
}

/// The token is never printed.
impl std::fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubSettings")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

impl HubSettings {
    /// Reads variables from `var`. An empty value counts as absent.
    ///
    /// # Errors
    /// If a variable is invalid.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let var = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            let problem = format!("expected an http or https address, found {endpoint}");
            return Err(Error::Setting { name: "HF_ENDPOINT", problem });
        }
        Ok(Self {
            endpoint,
            cache: cache(&var)?,
            token: token(&var)?,
            offline: var("HF_HUB_OFFLINE").is_some_and(|value| is_on(&value)),
            retry_pause: Duration::from_millis(500),
        })
    }
}

fn cache(var: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, Error> {
    if let Some(cache) = var("HF_HUB_CACHE").or_else(|| var("HUGGINGFACE_HUB_CACHE")) {
        return Ok(cache.into());
    }
    if let Some(home) = var("HF_HOME") {
        return Ok(PathBuf::from(home).join("hub"));
    }
    let caches = match (var("XDG_CACHE_HOME"), var("HOME").or_else(|| var("USERPROFILE"))) {
        (Some(caches), _) => PathBuf::from(caches),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => {
            let problem = "expected a folder for downloads here, as HOME is not set either";
            return Err(Error::Setting { name: "HF_HOME", problem: problem.into() });
        }
    };
    Ok(caches.join("huggingface").join("hub"))
}

fn token(var: &impl Fn(&str) -> Option<String>) -> Result<Option<String>, Error> {
    let Some(token) = var("HF_TOKEN") else { return Ok(None) };
    let token = token.trim();
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        let problem = "expected printable ASCII characters without spaces, found others";
        return Err(Error::Setting { name: "HF_TOKEN", problem: problem.into() });
    }
    Ok(Some(token.to_owned()))
}

fn is_on(value: &str) -> bool {
    ["1", "ON", "YES", "TRUE"].contains(&value.trim().to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<HubSettings, Error> {
        let find = |name: &str| vars.iter().find(|(key, _)| *key == name);
        HubSettings::from_vars(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn check_cache(vars: &[(&str, &str)], expected: &str) {
        assert_eq!(read(vars).unwrap().cache, PathBuf::from(expected));
    }

    #[test]
    fn the_cache_is_where_other_tools_look_for_it() {
        check_cache(&[("HOME", "/h")], "/h/.cache/huggingface/hub");
        check_cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check_cache(&[("HF_HOME", "/f"), ("XDG_CACHE_HOME", "/x")], "/f/hub");
        check_cache(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/f")], "/c");
        assert!(read(&[]).is_err());
    }

    #[test]
    fn endpoint_and_switches_are_read_and_checked() {
        let home = ("HF_HOME", "/f");
        let settings = read(&[home, ("HF_ENDPOINT", "http://127.0.0.1:80/")]).unwrap();
        assert_eq!((settings.endpoint.as_str(), settings.offline), ("http://127.0.0.1:80", false));
        assert!(read(&[home, ("HF_HUB_OFFLINE", "true")]).unwrap().offline);
        assert!(!read(&[home, ("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        assert!(read(&[home, ("HF_ENDPOINT", "ftp://x")]).is_err());
        assert!(read(&[home, ("HF_TOKEN", "a\nb")]).is_err());
    }

    #[test]
    fn the_token_is_not_printed() {
        let settings = read(&[("HF_HOME", "/f"), ("HF_TOKEN", "secret")]).unwrap();
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
