//! [`Sqlite`]: the registry in a file, which an operator can read with any tool while the service writes.

use std::path::Path;
use std::time::Duration;

use policy::{AgentId, SkillId, UserId};
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params_from_iter};
use storage::{Shelf, Version};

use super::{Change, Error, Owners, Question, Registry, Result, Row, Telling};

/// The format of the file, `user_version` of SQLite. A file of another one is made anew.
const FORMAT: i64 = 1;
/// How long another program's lock is waited for. A lock that lasts longer makes rows late, not requests.
const PATIENCE: Duration = Duration::from_millis(100);
/// Pages kept in memory, in KiB as `cache_size` wants it.
const CACHE_KIB: i64 = 1024;
/// The size to which the log of a large change is cut afterwards, in bytes.
const LOG_BYTES: i64 = 4 * 1024 * 1024;

/// `owner` is what rows are sorted by: NULL sorts differently from one database to the next, and an id is never empty.
const TABLE: &str = "
    CREATE TABLE agent_skill_registry (
        id TEXT NOT NULL PRIMARY KEY,
        agent_id TEXT NOT NULL,
        skill_id TEXT NOT NULL,
        user_id TEXT,
        version TEXT NOT NULL,
        digest TEXT NOT NULL,
        size INTEGER NOT NULL,
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        uploaded_by TEXT,
        created_at INTEGER NOT NULL,
        owner TEXT NOT NULL GENERATED ALWAYS AS (ifnull(user_id, '')) VIRTUAL
    ) STRICT;
    CREATE UNIQUE INDEX registry_by_shelf ON agent_skill_registry (agent_id, skill_id, owner);
    CREATE INDEX registry_by_owner ON agent_skill_registry (owner, agent_id, skill_id);";

const COLUMNS: &str =
    "id, agent_id, skill_id, user_id, version, digest, size, name, description, uploaded_by, created_at";

/// A registry in a file of SQLite.
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Opens the registry in the file `path`, made when it is missing. Tells whether it was.
    ///
    /// # Errors
    /// [`Error::Broken`] when the file is of another format or damaged, [`Error::Unavailable`].
    pub fn open(path: &Path) -> Result<(Self, bool)> {
        // One thread uses it, and no name is a URI.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        // Readers do not wait for the writer, and a change waits for no disk: what a loss of power takes away is made
        // again from the data directory (sqlite.org/pragma.html#pragma_synchronous).
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let format: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let is_new = tables == 0 && format == 0;
        if is_new {
            transaction.execute_batch(TABLE)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
        } else if format != FORMAT {
            return Err(Error::Broken(format!("its format is {format}, not {FORMAT}")));
        }
        transaction.commit()?;
        Ok((Self { connection }, is_new))
    }

    /// Looks whether the file is damaged.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Unavailable`].
    pub fn check(&self) -> Result<()> {
        let found: String = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found == "ok" { Ok(()) } else { Err(Error::Broken(found)) }
    }

    /// Brings everything into the file itself and ends.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when another program reads it, which leaves a log beside it.
    pub fn close(self) -> Result<()> {
        self.connection.close().map_err(|(_, error)| error.into())
    }
}

impl Registry for Sqlite {
    fn apply(&mut self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for change in changes {
            match change {
                Change::Put(row) => put(&transaction, row)?,
                Change::Remove(shelf) => {
                    let sql =
                        "DELETE FROM agent_skill_registry WHERE agent_id = ? AND skill_id = ? AND owner = ?";
                    let owner = owner(shelf);
                    transaction.prepare_cached(sql)?.execute((
                        shelf.agent.as_str(),
                        shelf.skill.as_str(),
                        owner,
                    ))?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn list(&mut self, question: &Question) -> Result<Vec<Row>> {
        let (sql, values) = query(question);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(values), |row| Ok(read(row)))?;
        rows.map(|row| row?).collect()
    }

    fn replace(&mut self, tell: &mut Telling<'_>) -> Result<usize> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("DELETE FROM agent_skill_registry", [])?;
        let mut rows = 0;
        tell(&mut |row| {
            rows += 1;
            put(&transaction, &row)
        })?;
        transaction.commit()?;
        Ok(rows)
    }
}

fn owner(shelf: &Shelf) -> &str {
    shelf.user.as_ref().map_or("", UserId::as_str)
}

fn put(transaction: &Transaction<'_>, row: &Row) -> Result<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO agent_skill_registry ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    );
    transaction.prepare_cached(&sql)?.execute((
        &row.id,
        row.shelf.agent.as_str(),
        row.shelf.skill.as_str(),
        row.shelf.user.as_ref().map(UserId::as_str),
        row.version.as_str(),
        &row.digest,
        i64::try_from(row.size).unwrap_or(i64::MAX),
        &row.name,
        &row.description,
        row.uploaded_by.as_deref(),
        row.created_ms,
    ))?;
    Ok(())
}

/// The query of a question; what callers send is bound, never written into it.
fn query(question: &Question) -> (String, Vec<Value>) {
    let mut conditions: Vec<&str> = Vec::new();
    let mut values = Vec::new();
    let text = |text: &str| Value::Text(text.to_owned());
    if let Some(id) = &question.id {
        conditions.push("id = ?");
        values.push(text(id));
    }
    if let Some(agent) = &question.agent {
        conditions.push("agent_id = ?");
        values.push(text(agent.as_str()));
    }
    if let Some(skill) = &question.skill {
        conditions.push("skill_id = ?");
        values.push(text(skill.as_str()));
    }
    match &question.owners {
        Owners::All => {}
        Owners::Baseline => conditions.push("owner = ''"),
        Owners::Overlays => conditions.push("owner <> ''"),
        Owners::User(user) => {
            conditions.push("owner = ?");
            values.push(text(user.as_str()));
        }
        Owners::UserAndBaseline(user) => {
            conditions.push("owner IN ('', ?)");
            values.push(text(user.as_str()));
        }
    }
    if let Some(after) = &question.after {
        conditions.push("(agent_id, skill_id, owner) > (?, ?, ?)");
        values.extend([text(after.agent.as_str()), text(after.skill.as_str()), text(owner(after))]);
    }
    let conditions =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    values.push(Value::Integer(i64::try_from(question.limit).unwrap_or(i64::MAX)));
    let sql = format!(
        "SELECT {COLUMNS} FROM agent_skill_registry {conditions} ORDER BY agent_id, skill_id, owner LIMIT ?"
    );
    (sql, values)
}

/// A row of the table, if it is one that was put there.
fn read(row: &rusqlite::Row<'_>) -> Result<Row> {
    let wrong = |column: &str| Error::Broken(format!("a row's `{column}` makes no sense"));
    let [agent, skill, version]: [String; 3] =
        [row.get("agent_id")?, row.get("skill_id")?, row.get("version")?];
    let [user, uploaded_by]: [Option<String>; 2] = [row.get("user_id")?, row.get("uploaded_by")?];
    let user_id = |text: Option<String>, column| {
        text.map(|text| UserId::parse(&text)).transpose().map_err(|_| wrong(column))
    };
    let shelf = Shelf {
        agent: AgentId::parse(&agent).map_err(|_| wrong("agent_id"))?,
        skill: SkillId::parse(&skill).map_err(|_| wrong("skill_id"))?,
        user: user_id(user, "user_id")?,
    };
    Ok(Row {
        id: row.get("id")?,
        shelf,
        version: Version::parse(&version).ok_or_else(|| wrong("version"))?,
        digest: row.get("digest")?,
        size: u64::try_from(row.get::<_, i64>("size")?).map_err(|_| wrong("size"))?,
        name: row.get("name")?,
        description: row.get("description")?,
        uploaded_by,
        created_ms: row.get("created_at")?,
    })
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let is_passing = match error.sqlite_error_code() {
            // Another program's lock, or no room: another try may succeed.
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly,
            ) => true,
            // Damage, another program's table, or a value of another type: it has to be made anew.
            _ => false,
        };
        if is_passing { Self::Unavailable(Box::new(error)) } else { Self::Broken(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract;
    use super::*;

    #[test]
    fn it_keeps_the_contract_of_registries() {
        let temp = tempfile::tempdir().unwrap();
        let mut number = 0;
        contract::check(&mut || {
            number += 1;
            let (registry, is_new) = Sqlite::open(&temp.path().join(format!("{number}.db"))).unwrap();
            assert!(is_new);
            Box::new(registry)
        });
    }

    #[test]
    fn what_was_put_is_there_when_it_is_opened_again_and_another_format_is_refused_as_broken() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("registry.db");
        let (mut registry, _) = Sqlite::open(&path).unwrap();
        registry.check().unwrap();
        assert_eq!(registry.replace(&mut |_| Ok(())).unwrap(), 0);
        registry.close().unwrap();
        assert!(!Sqlite::open(&path).unwrap().1);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 9).unwrap();
        drop(connection);
        assert!(matches!(Sqlite::open(&path), Err(Error::Broken(_))));
    }

    #[test]
    fn a_question_about_one_user_or_agent_reads_an_index_and_sorts_nothing_it_does_not_send() {
        let temp = tempfile::tempdir().unwrap();
        let (registry, _) = Sqlite::open(&temp.path().join("registry.db")).unwrap();
        let agent = Some(AgentId::parse("a").unwrap());
        let user = UserId::parse("u").unwrap();
        for question in [
            Question::all(1),
            Question { agent: agent.clone(), ..Question::all(1) },
            Question { owners: Owners::User(user.clone()), ..Question::all(1) },
            Question { owners: Owners::Baseline, ..Question::all(1) },
            Question { agent, owners: Owners::UserAndBaseline(user), ..Question::all(1) },
            Question { id: Some("0".repeat(32)), ..Question::all(1) },
        ] {
            let (sql, values) = query(&question);
            let mut statement = registry.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>("detail"));
            let steps: Vec<String> = steps.unwrap().map(|step| step.unwrap()).collect();
            let is_cheap = steps.len() == 1 && steps[0].contains("USING INDEX");
            assert!(is_cheap, "{question:?}: {steps:?}");
        }
    }
}
