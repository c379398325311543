//! The file of records: how it is opened, its schema, and one commit.

use crate::group::Group;
use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The version of what the tables hold. It is raised when an older server could misread them.
const SCHEMA: u64 = 1;

/// The name of the file in its folder, and of the file whose lock says that the folder is used.
const FILE: &str = "state.redb";
const LOCK: &str = "lock";

/// The table that describes the file.
const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("about");
const SCHEMA_KEY: &str = "schema";

/// Bytes of the file that are kept in memory; records are kept by their stores.
const CACHE_BYTES: usize = 16 << 20;

/// Why the state of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The folder or the file cannot be made or opened.
    #[error("cannot use {} for state: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("{} is used by another server: each server needs a state folder of its own",
        path.display())]
    Used {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version.
    #[error("{} has schema {found}, which is newer than schema {SCHEMA} of this version of gannet",
        path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
    /// The file is no database, or a damaged one.
    #[error("cannot read {}: {problem}; remove the file to begin anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
}

/// Makes the folder where there is none, and takes its lock, which is held while the file lives.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, StateError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| StateError::Io { path, source }
    };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StateError::Used { path: folder.join(FILE) }),
        Err(TryLockError::Error(source)) => Err(StateError::Io { path, source }),
    }
}

/// Opens a database file.
pub(crate) type Opener = fn(&Path) -> Result<Database, redb::Error>;

/// Opens the database in the file `path`, which is created where there is none.
pub(crate) fn open_database(path: &Path) -> Result<Database, redb::Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let backend = FileBackend::new(options.open(path)?)?;
    let mut builder = Database::builder();
    Ok(builder.set_cache_size(CACHE_BYTES).create_with_backend(backend)?)
}

/// The database, which is closed after an error and opened again by the next commit.
#[derive(Debug)]
pub(crate) struct StateFile {
    pub path: PathBuf,
    opener: Opener,
    database: Option<Database>,
}

impl StateFile {
    /// Opens the file of `folder` and checks its schema.
    ///
    /// # Errors
    /// If the file cannot be opened, is damaged, is used by another process, or has a schema that
    /// is newer.
    pub fn open(folder: &Path, opener: Opener) -> Result<Self, StateError> {
        let path = folder.join(FILE);
        let problem = |error: redb::Error| match error {
            // Other errors of this kind are those of redb about the content.
            redb::Error::Io(source) if source.raw_os_error().is_some() => {
                StateError::Io { path: path.clone(), source }
            }
            redb::Error::DatabaseAlreadyOpen => StateError::Used { path: path.clone() },
            other => StateError::Damaged { path: path.clone(), problem: other.to_string() },
        };
        let open = || {
            let database = opener(&path)?;
            let found = schema(&database)?;
            Ok((database, found))
        };
        let (database, found) = guarded(open).map_err(problem)?;
        let file = Self { path, opener, database: Some(database) };
        match found > SCHEMA {
            true => Err(StateError::Newer { path: file.path.clone(), found }),
            false => Ok(file),
        }
    }

    /// Calls `visit` with the key and the value of each record of `table`, in the order of keys.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn read(
        &self,
        table: &str,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Ok(()) };
        guarded(|| read(database, table, visit))
    }

    /// Writes all changes of `group`, or none. When it returns they are on disk.
    ///
    /// # Errors
    /// If the changes cannot be written; later calls do nothing.
    pub fn commit(&mut self, group: &Group) -> Result<(), redb::Error> {
        let result = guarded(|| self.try_commit(group));
        if result.is_err() {
            // After an error the database refuses all work.
            self.close();
        }
        result
    }

    /// Closes the database.
    pub fn close(&mut self) {
        let database = self.database.take();
        // Closing writes too. What it cannot write, the next opening repairs.
        let _ = guarded(|| {
            drop(database);
            Ok(())
        });
    }

    fn try_commit(&mut self, group: &Group) -> Result<(), redb::Error> {
        let database = match &mut self.database {
            Some(database) => database,
            closed => closed.insert((self.opener)(&self.path)?),
        };
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        for (table, changes) in group.tables() {
            let mut table = transaction.open_table(definition(table))?;
            for (key, new) in changes {
                match &new.value {
                    Some(value) => drop(table.insert(&**key, &**value)?),
                    None => drop(table.remove(&**key)?),
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// Calls `visit` with each record of `table`.
fn read(
    database: &Database,
    table: &str,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<(), redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(definition(table)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for record in table.iter()? {
        let (key, value) = record?;
        visit(key.value(), value.value());
    }
    Ok(())
}

/// Runs `work`. The database asserts what it finds in damaged files, which is an error here.
fn guarded<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(redb::Error::Corrupted("the file is damaged".to_owned())))
}

fn definition(table: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(table)
}

/// The schema of the file, which is written into a new one.
fn schema(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let found = {
        let mut about = transaction.open_table(ABOUT)?;
        let found = about.get(SCHEMA_KEY)?.map(|number| number.value());
        if found.is_none() {
            about.insert(SCHEMA_KEY, SCHEMA)?;
        }
        found
    };
    transaction.commit()?;
    Ok(found.unwrap_or(SCHEMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        drop(StateFile::open(folder.path(), open_database).unwrap());
        let path = folder.path().join(FILE);
        let database = open_database(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(ABOUT).unwrap().insert(SCHEMA_KEY, SCHEMA + 1).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let error = StateFile::open(folder.path(), open_database).unwrap_err().to_string();
        assert!(error.contains("state.redb has schema 2") && error.contains("newer"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), vec![7; 9000]).unwrap();
        let error = StateFile::open(folder.path(), open_database).unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("state.redb"), "{error}");
    }
}
