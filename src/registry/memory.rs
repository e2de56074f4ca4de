//! [`Memory`]: a registry in memory.

use std::collections::BTreeMap;

use storage::Shelf;

use super::{Change, Question, Registry, Result, Row, Telling};

/// A registry in memory. It forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    rows: BTreeMap<Shelf, Row>,
}

impl Registry for Memory {
    fn apply(&mut self, changes: &[Change]) -> Result<()> {
        for change in changes {
            match change {
                Change::Put(row) => drop(self.rows.insert(row.shelf.clone(), row.clone())),
                Change::Remove(shelf) => drop(self.rows.remove(shelf)),
            }
        }
        Ok(())
    }

    fn list(&mut self, question: &Question) -> Result<Vec<Row>> {
        let asked = self.rows.values().filter(|row| question.admits(&row.shelf));
        Ok(asked.take(question.limit).cloned().collect())
    }

    fn replace(&mut self, tell: &mut Telling<'_>) -> Result<usize> {
        let mut rows = BTreeMap::new();
        tell(&mut |row| {
            rows.insert(row.shelf.clone(), row);
            Ok(())
        })?;
        self.rows = rows;
        Ok(self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_keeps_the_contract_of_registries() {
        super::super::contract::check(&mut || Box::<super::Memory>::default());
    }
}
