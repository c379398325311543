//! The adapters of a running model by name and number, from which requests choose.

use backend::{AdapterSet, ScaledAdapter};
use engine::{AdapterBase, LoadedAdapter, MAX_ADAPTERS, check_count, check_scale};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Most characters of the name of an adapter.
const MAX_NAME: usize = 256;
/// Most names of removed adapters that are remembered.
const MAX_REMOVED: usize = 10_000;

/// Why an adapter was not added, found or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// There is no adapter of this name or number.
    #[error("{0}")]
    Unknown(String),
    /// The name of an adapter to add is taken, or is none.
    #[error("{0}")]
    Name(String),
    /// There are too many adapters, or it does not fit the model.
    #[error("{0}")]
    Refused(String),
}

/// An adapter among those of a model.
#[derive(Clone, Debug)]
pub struct NamedAdapter {
    /// Its number, which no adapter of another name gets.
    pub id: usize,
    /// Its name.
    pub name: String,
    /// The folder or file that it was read from.
    pub path: PathBuf,
    /// Factor by which it is applied to requests that choose none; 0 for not at all.
    pub scale: f32,
    adapter: Arc<backend::Adapter>,
}

impl NamedAdapter {
    /// The largest rank of its pairs.
    pub fn rank(&self) -> usize {
        self.adapter.rank()
    }
}

/// The adapters of a running model. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    base: Option<AdapterBase>,
    /// Most adapters in memory.
    most: usize,
    state: Arc<Mutex<AdapterTable>>,
}

#[derive(Debug, Default)]
struct AdapterTable {
    adapters: Vec<NamedAdapter>,
    /// Names that no adapter may have: those of the model.
    taken: Vec<String>,
    next: usize,
    removed: HashSet<String>,
}

impl Adapters {
    /// The adapters that a model was loaded with; where two have one name, the second gets a number
    /// behind it. At most `most` are held at a time.
    ///
    /// # Errors
    /// If there are more than `most`, or a name is not printable.
    pub fn new(
        base: AdapterBase,
        loaded: &[(LoadedAdapter, f32)],
        most: usize,
    ) -> Result<Self, AdapterError> {
        let adapters = Self { base: Some(base), most, state: Arc::default() };
        for (adapter, scale) in loaded {
            let held = adapters.list();
            let taken = |name: &String| held.iter().any(|adapter| adapter.name == *name);
            let numbered = (2..).map(|number| format!("{}-{number}", adapter.name));
            let mut names = std::iter::once(adapter.name.clone()).chain(numbered);
            let name = names.find(|name| !taken(name));
            adapters.insert(adapter.clone(), name.as_deref(), *scale)?;
        }
        Ok(adapters)
    }

    /// Reserves names of the model, which no adapter may have.
    ///
    /// # Errors
    /// If an adapter has one of these names.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) -> Result<(), AdapterError> {
        let mut table = self.table();
        for name in names {
            if table.adapters.iter().any(|adapter| adapter.name == name) {
                return Err(AdapterError::Name(format!("{name}: the model has this name")));
            }
            table.taken.push(name);
        }
        Ok(())
    }

    fn table(&self) -> std::sync::MutexGuard<'_, AdapterTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapters, in the order in which they were added.
    pub fn list(&self) -> Vec<NamedAdapter> {
        self.table().adapters.clone()
    }

    /// Reads the adapter at `path` and adds it as `name`, or under its own name. Takes time
    /// proportional to its size.
    ///
    /// # Errors
    /// If the name is taken, too many are held, or the adapter cannot be read for the model.
    pub fn add(&self, name: Option<&str>, path: &Path) -> Result<NamedAdapter, AdapterError> {
        self.base()?;
        self.table().check_room(name, self.most)?;
        self.insert(self.open(path)?, name, 0.0)
    }

    /// Reads the adapter at `path` in the place of the one named `name`, whose number and factor it
    /// gets, or adds it if there is none. Requests that have begun keep the adapter that they have.
    ///
    /// # Errors
    /// As [`add`](Self::add), for a name that an adapter has already.
    pub fn replace(&self, name: &str, path: &Path) -> Result<NamedAdapter, AdapterError> {
        if self.table().named(name).is_none() {
            return self.add(Some(name), path);
        }
        let LoadedAdapter { path, adapter, .. } = self.open(path)?;
        let mut table = self.table();
        match table.adapters.iter_mut().find(|held| held.name == name) {
            Some(held) => {
                (held.path, held.adapter) = (path, adapter);
                Ok(held.clone())
            }
            None => Err(AdapterError::Unknown(format!("no such adapter: {name}"))),
        }
    }

    fn base(&self) -> Result<&AdapterBase, AdapterError> {
        let none = || AdapterError::Refused("this model takes no adapters".to_owned());
        self.base.as_ref().ok_or_else(none)
    }

    fn open(&self, path: &Path) -> Result<LoadedAdapter, AdapterError> {
        let opened = self.base()?.open(path);
        opened.map_err(|error| AdapterError::Refused(error.with_causes()))
    }

    fn insert(
        &self,
        loaded: LoadedAdapter,
        name: Option<&str>,
        scale: f32,
    ) -> Result<NamedAdapter, AdapterError> {
        let name = name.unwrap_or(&loaded.name).to_owned();
        let mut table = self.table();
        table.check_room(Some(&name), self.most)?;
        let LoadedAdapter { path, adapter, .. } = loaded;
        let named = NamedAdapter { id: table.next, name, path, scale, adapter };
        table.next += 1;
        table.removed.remove(&named.name);
        table.adapters.push(named.clone());
        Ok(named)
    }

    /// Removes the adapter with this name. Requests that have begun with it keep it.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove(&self, name: &str) -> Result<(), AdapterError> {
        let mut table = self.table();
        let at = table.adapters.iter().position(|adapter| adapter.name == name);
        let at = at.ok_or_else(|| AdapterError::Unknown(format!("no such adapter: {name}")))?;
        table.adapters.remove(at);
        if table.removed.len() < MAX_REMOVED {
            table.removed.insert(name.to_owned());
        }
        Ok(())
    }

    /// Sets the factors of adapters, by number, for requests that choose none; 0 for others.
    ///
    /// # Errors
    /// As [`of_numbers`](Self::of_numbers).
    pub fn set_scales(&self, scales: &[(usize, f32)]) -> Result<(), AdapterError> {
        self.of_numbers(scales)?;
        for adapter in &mut self.table().adapters {
            let own = scales.iter().find(|(id, _)| *id == adapter.id);
            adapter.scale = own.map_or(0.0, |(_, scale)| *scale);
        }
        Ok(())
    }

    /// The adapters of requests that choose none; `None` where the engine has none.
    pub fn default_set(&self) -> Option<AdapterSet> {
        self.base.as_ref()?;
        let table = self.table();
        let scaled = |it: &NamedAdapter| it.scaled(it.scale);
        Some(AdapterSet::new(table.adapters.iter().map(scaled)))
    }

    /// The adapter that `model` names by its own name, or after a name of the model and a colon.
    /// `None` if `model` names none.
    ///
    /// # Errors
    /// If an adapter of this name was removed, or is named so and not there.
    pub fn of_model(&self, model: &str) -> Result<Option<NamedAdapter>, AdapterError> {
        let table = self.table();
        if self.base.is_none() || table.taken.iter().any(|taken| taken == model) {
            return Ok(None);
        }
        let find = |name: &str| table.named(name).cloned();
        let behind =
            table.taken.iter().find_map(|taken| model.strip_prefix(taken)?.strip_prefix(':'));
        if let Some(found) = find(model).or_else(|| find(behind?)) {
            return Ok(Some(found));
        }
        let has_adapters = table.next > 0;
        let is_unknown = behind.is_some_and(|name| has_adapters && name != "latest");
        match is_unknown || table.removed.contains(model) {
            true => Err(AdapterError::Unknown(format!("no such model: {model}"))),
            false => Ok(None),
        }
    }

    /// The adapters with these numbers, each by its factor, in the order of their numbers.
    ///
    /// # Errors
    /// If there is none of a number, a factor is out of range, or there are too many.
    pub fn of_numbers(&self, chosen: &[(usize, f32)]) -> Result<AdapterSet, AdapterError> {
        // Factors of 0 leave adapters out.
        let applied = chosen.iter().filter(|(_, scale)| *scale != 0.0).count();
        check_count(applied).map_err(AdapterError::Refused)?;
        let mut chosen = chosen.to_vec();
        chosen.sort_by_key(|(id, _)| *id);
        if let Some(two) = chosen.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(AdapterError::Refused(format!("adapter {} is chosen twice", two[0].0)));
        }
        let table = self.table();
        let find = |(id, scale): (usize, f32)| {
            check_scale(scale).map_err(AdapterError::Refused)?;
            let found = table.adapters.iter().find(|adapter| adapter.id == id);
            let found = found.map(|adapter| adapter.scaled(scale));
            found.ok_or_else(|| AdapterError::Unknown(format!("no such adapter: {id}")))
        };
        let scaled = chosen.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
        Ok(AdapterSet::new(scaled))
    }
}

impl NamedAdapter {
    fn scaled(&self, scale: f32) -> ScaledAdapter {
        ScaledAdapter { adapter: Arc::clone(&self.adapter), scale }
    }

    /// This adapter alone, by its own factor.
    pub fn alone(&self) -> AdapterSet {
        AdapterSet::new([self.scaled(1.0)])
    }
}

impl AdapterTable {
    fn named(&self, name: &str) -> Option<&NamedAdapter> {
        self.adapters.iter().find(|adapter| adapter.name == name)
    }

    /// Checks that an adapter of this name may be added.
    fn check_room(&self, name: Option<&str>, most: usize) -> Result<(), AdapterError> {
        name.map_or(Ok(()), |name| self.check_name(name))?;
        match self.adapters.len() >= most {
            true => {
                let problem = format!("expected at most {most} adapters, found one more");
                Err(AdapterError::Refused(problem))
            }
            false => Ok(()),
        }
    }

    /// Checks that `name` is one that an adapter may have, and not taken.
    fn check_name(&self, name: &str) -> Result<(), AdapterError> {
        let wrong = |problem: String| Err(AdapterError::Name(problem));
        let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
        if !is_plain || name.chars().count() > MAX_NAME {
            return wrong(format!("expected a name of 1 to {MAX_NAME} printable characters"));
        }
        let held = self.adapters.iter().map(|adapter| &adapter.name);
        match held.chain(&self.taken).any(|taken| taken == name) {
            true => wrong(format!("{name}: the name is taken")),
            false => Ok(()),
        }
    }
}

/// The default of the most adapters in memory.
pub const DEFAULT_ADAPTERS: usize = 4 * MAX_ADAPTERS;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> AdapterTable {
        let adapter = Arc::new(backend::Adapter::new("digest".to_owned(), Vec::new()));
        let named = |(id, name): (usize, &&str)| NamedAdapter {
            id,
            name: (*name).to_owned(),
            path: PathBuf::new(),
            scale: 0.0,
            adapter: Arc::clone(&adapter),
        };
        let adapters = names.iter().enumerate().map(named).collect();
        AdapterTable { adapters, taken: vec!["base".to_owned()], ..AdapterTable::default() }
    }

    #[test]
    fn names_are_free_printable_and_few_enough() {
        let table = table(&["a", "b"]);
        let check = |name: &str, most: usize| table.check_room(Some(name), most).is_ok();
        assert!(check("c", 3) && !check("c", 2));
        assert!(!check("a", 3) && !check("base", 3) && !check("", 3) && !check("x\ny", 3));
        assert!(check(&"x".repeat(MAX_NAME), 3) && !check(&"x".repeat(MAX_NAME + 1), 3));
    }

    #[test]
    fn a_model_without_adapters_takes_every_name_and_no_adapter() {
        let none = Adapters::default();
        assert!(none.of_model("base:x").unwrap().is_none() && none.default_set().is_none());
        assert!(matches!(none.add(None, Path::new("x")), Err(AdapterError::Refused(_))));
        assert!(matches!(none.remove("x"), Err(AdapterError::Unknown(_))));
    }
}
