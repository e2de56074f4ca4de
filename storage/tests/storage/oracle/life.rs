//! A skill's whole life at random: new baselines, removing and going back, promoting, pulling, runs set aside, and edits by
//! requests and by commands, with a live view mounted, idle or not there.
//!
//! After every step four opinions are compared, by list, stat and read: the store's, a model's of what the user did, the
//! kernel's (through the live view of the command that is there, or of one that looks in, or through a mount of the layers),
//! and the model of the merge on the overlay as it lies on the disk ([`Overlay`]). What a step must make of the view follows
//! from the model alone, but for what a user and the application changed at once (see [`Promoted::assert_kept`]).

use policy::Scope;
use storage::{Error, Placement, Prefer, Status, Version};

use super::fixture::kernel::KernelView;
use super::fixture::live::{Command, WAYS, Way};
use super::fixture::random::Random;
use super::fixture::{
    Fixture, KERNEL_ATTRIBUTES, Node, Tree, agent, assert_valid_upper, publisher, skill_id, skill_tree,
    user_id,
};
use super::layers::{Entry, Overlay, same};
use super::{Named, Operation, USER, change_skill_by_command, live_sequences, random_tree};

const SKILL: &str = "alpha";
/// Changes nothing, and so sees what the application has.
const OTHER: &str = "v";

/// How a view was looked at: by a mount of the layers on the disk.
const MERGED: &str = "what the kernel merges";

struct Life {
    fixture: Fixture,
    /// What the application has.
    current: Option<Tree>,
    versions: Vec<(Version, Tree)>,
    /// What the user sees; `None` when it is hidden.
    seen: Option<Tree>,
    inside: Option<Inside>,
    log: Vec<String>,
}

/// A command in the skill.
struct Inside {
    command: Command,
    /// The version that it sees the overlay over.
    below: Option<Tree>,
    /// What the user published while it was there.
    promoted: Option<Promoted>,
}

struct Promoted {
    /// What the user saw then.
    seen: Tree,
    /// What the application had then.
    over: Tree,
    /// What the application has of it.
    became: Tree,
}

impl Life {
    fn view(&self, user: &str) -> Option<Tree> {
        Tree::through(&self.fixture.skill(user, SKILL))
    }

    fn status(&self, user: &str) -> Status {
        self.fixture.store.skills().status(&skill_tree(user, SKILL)).unwrap().status
    }

    fn overlay(&self) -> Overlay {
        Overlay::on_disk(&self.fixture.overlay_path(USER).join(SKILL))
    }

    /// What the user's overlay lies over.
    fn below(&self) -> Option<&Tree> {
        match &self.inside {
            Some(inside) => inside.below.as_ref(),
            None => self.current.as_ref(),
        }
    }

    /// The version that the record says the overlay began with, as LAYERS.md has it; outer `None` without a record.
    fn base(&self) -> Option<Option<Tree>> {
        let record = self.fixture.root().join(".filesecbox/bases/agent").join(SKILL).join(USER);
        let text = std::fs::read_to_string(record).ok()?;
        let version = Version::parse(text.lines().next().unwrap());
        Some(version.map(|version| {
            let known = self.versions.iter().find(|(known, _)| *known == version);
            known.unwrap_or_else(|| panic!("no such version; {:#?}", self.log)).1.clone()
        }))
    }

    #[track_caller]
    fn check(&mut self, random: &mut Random) {
        if self.is_vague() {
            self.fixture.store.close_views().unwrap();
            self.seen = self.view(USER);
        }
        self.assert_sees(self.view(USER).as_ref(), self.seen.as_ref(), "what the user sees");
        self.assert_sees(self.view(OTHER).as_ref(), self.current.as_ref(), "what others see");
        assert_eq!(self.status(OTHER), Status::Unchanged, "{:#?}", self.log);
        let merged = self.overlay().over(self.below());
        self.assert_sees(merged.as_ref(), self.seen.as_ref(), "the overlay on the disk");
        let (mut kernels, which) = self.kernels(random);
        if which == MERGED && kernels != self.seen {
            // What a closed view has left in the overlay is tidied in the background.
            self.fixture.store.close_views().unwrap();
            kernels = self.merged();
        }
        self.assert_sees(kernels.as_ref(), self.seen.as_ref(), which);
        assert_valid_upper(&self.fixture.overlay_path(USER), &KERNEL_ATTRIBUTES);
    }

    /// Compares two views of the skill.
    #[track_caller]
    fn assert_sees(&self, found: Option<&Tree>, expected: Option<&Tree>, what: &str) {
        assert_eq!(
            found.is_some(),
            expected.is_some(),
            "{what}: it is there for one side only; {:#?}",
            self.log
        );
        let (Some(found), Some(expected)) = (found, expected) else { return };
        for at in changed(found, expected) {
            let (found, expected) = (found.nodes.get(&at), expected.nodes.get(&at));
            assert_eq!(found, expected, "{what}: `{at}`; {:#?}", self.log);
        }
    }

    /// What the kernel says of the user's view, and how it was asked.
    fn kernels(&self, random: &mut Random) -> (Option<Tree>, &'static str) {
        if let Some(Inside { command, .. }) = &self.inside {
            return (Tree::on_disk(&command.tree()), "what the command sees");
        }
        if self.seen.is_some() && random.chance(40) {
            let command = self.fixture.command(&skill_tree(USER, SKILL));
            return (Tree::on_disk(&command.tree()), "what a new command sees");
        }
        (self.merged(), MERGED)
    }

    /// What the kernel merges of the layers on the disk.
    fn merged(&self) -> Option<Tree> {
        let (upper, lower) = (self.fixture.overlay_path(USER), self.fixture.baseline_path());
        if !upper.exists() {
            return self.current.clone();
        }
        let view = KernelView::look(self.fixture.root(), [&upper, &lower]).unwrap();
        // Live views have a remedy for them.
        Tree::on_disk_without_ghosts(&view.path().join(SKILL))
    }

    /// Ends the command. The view may stay, idle, or be closed.
    fn leave(&mut self, random: &mut Random) {
        let overlay = self.overlay();
        let Some(Inside { command, promoted, .. }) = self.inside.take() else { return };
        drop(command);
        // A reader may meet a promotion while it is settled in the background, and see tags of both sides.
        if promoted.is_some() || self.current.is_none() || random.chance(50) {
            self.fixture.store.close_views().unwrap();
        }
        let Some(promoted) = promoted else {
            self.seen = self.left_of(&overlay);
            return;
        };
        let (before, now) = (self.seen.take(), self.view(USER));
        if self.current.as_ref() == Some(&promoted.became) && promoted.seen == promoted.became {
            self.assert_sees(now.as_ref(), before.as_ref(), "settled");
        } else {
            let log = &self.log;
            let trees = [&before, &self.current, &now].map(|tree| tree.clone().unwrap_or_default());
            promoted.assert_kept(&trees, &overlay, log);
        }
        if before.as_ref() == Some(&promoted.seen) && self.current.as_ref() == Some(&promoted.became) {
            self.assert_sees(now.as_ref(), self.current.as_ref(), "settled without a change");
            assert_eq!(self.status(USER), Status::Unchanged, "{:#?}", self.log);
        }
        self.seen = now;
    }

    /// What the user sees over what the application has by now, when no view is left.
    fn left_of(&self, overlay: &Overlay) -> Option<Tree> {
        match overlay {
            // It goes with a view that it was there for, and stays an empty skill when there was none.
            Overlay::Upper { is_opaque: false, entries }
                if entries.is_empty()
                    && self.current.is_none()
                    && self.base().is_none_or(|base| base.is_some()) =>
            {
                self.view(USER).inspect(|tree| assert!(tree.nodes.is_empty(), "{:#?}", self.log))
            }
            overlay => overlay.over(self.current.as_ref()),
        }
    }

    /// Does what gives the application another version, or none.
    fn moves_on(&mut self, to: Option<Tree>, act: impl FnOnce(&Fixture)) {
        if to.is_none() && self.inside.is_none() {
            self.fixture.store.close_views().unwrap();
        }
        let overlay = self.overlay();
        act(&self.fixture);
        self.current = to;
        if self.inside.is_none() {
            self.seen = self.left_of(&overlay);
        }
    }

    fn step(&mut self, random: &mut Random) {
        let choice = random.below(24);
        self.log.push(format!("{choice}, command: {}", self.inside.is_some()));
        match choice {
            0..6 => self.edit(random),
            6..9 => self.publish(random),
            9 | 10 => self.go_back(random),
            11..14 => self.promote(),
            14..16 => self.pull(random),
            16..18 if self.inside.is_none() && self.seen.is_some() => {
                let command = self.fixture.command(&skill_tree(USER, SKILL));
                self.inside = Some(Inside { command, below: self.current.clone(), promoted: None });
            }
            18 => self.leave(random),
            19 | 20 if self.seen.is_some() => self.run_aside(random),
            _ => self.command_changes(random),
        }
    }

    fn publish(&mut self, random: &mut Random) {
        let mut next = match &self.current {
            Some(current) if random.chance(60) => current.clone(),
            _ => random_tree(random, 10),
        };
        if self.current.as_ref() == Some(&next) {
            // Only a part of it goes: one in which the user removed something, when there is such a part.
            let of_user = match self.overlay() {
                Overlay::Upper { entries, .. } => entries,
                Overlay::Absent | Overlay::Hidden => Default::default(),
            };
            let removed = of_user.iter().filter(|(_, entry)| **entry == Entry::Whiteout);
            let parents: Vec<&str> = removed.filter_map(|(at, _)| Some(at.rsplit_once('/')?.0)).collect();
            let gone = match parents.len() {
                0 => random.pick(&["a", "b", "数据", "深"]),
                many => parents[random.below(many)],
            };
            next.cut(gone);
        }
        if self.current.is_some() && random.chance(8) {
            let remove = |fixture: &Fixture| {
                fixture.store.skills().remove_baseline(&agent(), &skill_id(SKILL)).unwrap()
            };
            return self.moves_on(None, remove);
        }
        let mut version = None;
        self.moves_on(Some(next.clone()), |fixture| version = Some(fixture.baseline(SKILL, &next).version));
        self.note(version.unwrap(), next);
    }

    fn note(&mut self, version: Version, tree: Tree) {
        // Modes do not name a version: the last one of a name is the one that was kept.
        self.versions.retain(|(known, _)| *known != version);
        self.versions.push((version, tree));
    }

    fn go_back(&mut self, random: &mut Random) {
        let (version, tree) = self.versions[random.below(self.versions.len())].clone();
        let kept = self.fixture.store.skills().versions(&agent(), &skill_id(SKILL));
        if !kept.is_ok_and(|kept| kept.named(&(&version).into()).is_some()) {
            // Collected: it was replaced too long ago.
            return;
        }
        self.moves_on(Some(tree), |fixture| {
            drop(
                fixture
                    .store
                    .skills()
                    .rollback(&publisher("m"), &user_id("m"), &agent(), &skill_id(SKILL), &(&version).into())
                    .unwrap(),
            );
        });
    }

    fn promote(&mut self) {
        if self.current.is_none() && self.seen.as_ref().is_some_and(|seen| seen.nodes.is_empty()) {
            // Nothing over nothing, which goes with the next view.
            return;
        }
        let id = skill_tree(USER, SKILL);
        let (status, overlay) = (self.status(USER), self.overlay());
        let was_promoted = self.inside.as_ref().is_some_and(|inside| inside.promoted.is_some());
        let promoted = self
            .fixture
            .store
            .skills()
            .promote(&publisher("u"), &id, true)
            .map(|publication| publication.skills[0].clone());
        if was_promoted || status == Status::Unchanged || self.seen.is_none() {
            let refused = matches!(promoted, Err(Error::Conflict(_) | Error::NotFound(_)));
            return assert!(refused, "{promoted:?}; {:#?}", self.log);
        }
        let published = promoted.unwrap_or_else(|error| panic!("{error}; {:#?}", self.log));
        assert!(!published.unchanged, "{:#?}", self.log);
        let became = overlay.over(self.current.as_ref()).unwrap();
        self.note(published.version, became.clone());
        let over = self.current.replace(became.clone()).unwrap_or_default();
        let seen = self.seen.clone().unwrap();
        match &mut self.inside {
            Some(inside) => inside.promoted = Some(Promoted { seen, over, became }),
            None => {
                assert_eq!(self.overlay(), Overlay::Absent, "{:#?}", self.log);
                assert_eq!((self.base(), self.status(USER)), (None, Status::Unchanged), "{:#?}", self.log);
            }
        }
    }

    fn pull(&mut self, random: &mut Random) {
        let id = skill_tree(USER, SKILL);
        let prefer = if random.chance(50) { Prefer::Ours } else { Prefer::Theirs };
        let (overlay, base) = (self.overlay(), self.base().flatten());
        let told = self.fixture.store.skills().would_pull(&id, prefer);
        match self.fixture.store.skills().pull(&id, prefer) {
            Ok(pulled) if pulled.moved => {
                assert_eq!(told.unwrap(), pulled, "{:#?}", self.log);
                assert!(self.inside.is_none(), "{:#?}", self.log);
                let left = overlay.pulled(base.as_ref(), self.current.as_ref(), prefer);
                self.seen = left.over(self.current.as_ref());
                assert_ne!(self.status(USER), Status::OutOfSync, "{:#?}", self.log);
                assert!(!self.fixture.store.skills().pull(&id, prefer).unwrap().moved, "{:#?}", self.log);
            }
            Ok(_) => {}
            // Held off by a command, or without anything that there is to pull.
            Err(Error::Conflict(_)) if self.inside.is_some() => {}
            Err(Error::NotFound(_)) if self.current.is_none() && self.inside.is_none() => {}
            Err(error) => panic!("{error}; {:#?}", self.log),
        }
    }

    fn edit(&mut self, random: &mut Random) {
        let nothing = Tree::default();
        let lower = self.below().cloned();
        let seen = self.seen.as_ref().unwrap_or(&nothing);
        // Markers are at work where something was removed: what only the user had, of which nothing is left where it lay,
        // and what lay in a directory of the application's, which may go itself.
        let removed = match random.below(10) {
            0..3 => self.own_paths(),
            3 | 4 => seen.nodes.keys().filter(|at| at.contains('/')).cloned().collect(),
            _ => Vec::new(),
        };
        let operation = match removed.len() {
            0 => Operation::random(random, seen, lower.as_ref().unwrap_or(&nothing)),
            many => Operation::Remove { at: removed[random.below(many)].clone(), recursive: true },
        };
        if matches!(operation, Operation::RemoveSkill | Operation::Upload(_) | Operation::Reset) {
            // The command would go on in what is replaced.
            self.leave(random);
        }
        self.log.push(format!("{operation:?}"));
        if self.is_vague() {
            let _ = operation.on_store(&self.fixture, SKILL);
            self.seen = self.view(USER);
            return;
        }
        let expected = operation.on_model(&mut self.seen, self.current.as_ref());
        let happened = operation.on_store(&self.fixture, SKILL);
        assert_eq!(happened.is_ok(), expected.is_ok(), "{happened:?}; {:#?}", self.log);
    }

    /// Tells whether nothing is left of the skill but, perhaps, an empty overlay: it goes when a view goes.
    fn is_vague(&self) -> bool {
        self.current.is_none() && self.seen.as_ref().is_none_or(|seen| seen.nodes.is_empty())
    }

    /// What the user sees that the layer below has not.
    fn own_paths(&self) -> Vec<String> {
        let nothing = Tree::default();
        let below = self.below().unwrap_or(&nothing);
        let seen = self.seen.iter().flat_map(|tree| tree.nodes.keys());
        seen.filter(|at| !below.nodes.contains_key(*at)).cloned().collect()
    }

    fn command_changes(&mut self, random: &mut Random) {
        let own = self.own_paths();
        let Some(Inside { command, .. }) = &self.inside else { return };
        let root = command.tree();
        if !own.is_empty() && random.chance(30) {
            let at = root.join(&own[random.below(own.len())]);
            let _ = std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir_all(&at));
        } else {
            // Many of these are refused by the kernel, which is as good.
            let _ = change_skill_by_command(random, &root, &Tree::on_disk(&root).unwrap());
        }
        self.seen = Tree::on_disk(&root);
    }

    /// A run on a copy, of which everything is kept or nothing, while the user may do something else.
    fn run_aside(&mut self, random: &mut Random) {
        let plan = self.fixture.store.runs().plan(&skill_tree(USER, SKILL), Placement::InPlace, &[]).unwrap();
        let run = plan.aside().unwrap().prepare().unwrap();
        let tree = &run.view().tree;
        let before = Tree::on_disk(tree);
        let merged = self.overlay().over(self.current.as_ref());
        self.assert_sees(before.as_ref(), merged.as_ref(), "a copy");
        for _ in 0..3 {
            let _ = change_skill_by_command(random, tree, &Tree::on_disk(tree).unwrap());
        }
        if before != self.seen || random.chance(30) {
            // Nothing is kept; nor of a copy of what a command sees over another version.
            return;
        }
        if random.chance(30) {
            self.edit(random);
        }
        let (Some(left), Some(before)) = (Tree::on_disk(tree), before) else { return };
        let absorbed = match run.absorb() {
            // The skill was removed meanwhile.
            Err(Error::Conflict(_)) | Ok(_) if self.seen.is_none() => return,
            absorbed => absorbed.unwrap(),
        };
        self.log.push(format!("{absorbed:?}"));
        self.seen = match self.seen.take() {
            Some(seen) if seen == before => Some(left),
            seen => self.both(&before, seen.unwrap(), &left),
        };
    }

    /// What the user sees when a run that began with `before` leaves `left`, and requests made `seen` of it meanwhile.
    fn both(&self, before: &Tree, seen: Tree, left: &Tree) -> Option<Tree> {
        let theirs = changed(before, &seen);
        let its = changed(before, left);
        if its.iter().any(|at| theirs.iter().any(|other| is_related(at, other))) {
            // The run, which ended later, wins where it can: told apart by tests of their own.
            return self.view(USER);
        }
        let mut both = seen;
        its.iter().filter(|at| !left.nodes.contains_key(*at)).for_each(|at| both.cut(at));
        let placed = its.iter().filter_map(|at| Some((at.clone(), left.nodes.get(at)?.clone())));
        both.nodes.extend(placed);
        Some(both)
    }
}

impl Promoted {
    /// Tells that a user sees `now` what was changed after the promotion, of which `left` is what there was at the end, and
    /// what the application has (`current`) of everything that was not touched.
    fn assert_kept(&self, [left, current, now]: &[Tree; 3], overlay: &Overlay, log: &[String]) {
        let own = changed(&self.seen, left);
        for at in self.seen.nodes.keys().chain(left.nodes.keys()).chain(current.nodes.keys()) {
            let related = own.iter().filter(|other| is_related(at, other)).count();
            if own.contains(at) && (left.nodes.contains_key(at) || related == 1) {
                let is_kept = match left.nodes.get(at) {
                    // What the application put into it may show.
                    Some(Node::Dir { .. }) => matches!(now.nodes.get(at), Some(Node::Dir { .. })),
                    node => now.nodes.get(at) == node,
                };
                // What is as it was published goes the way of what was published; and of what both the user and the
                // application had made alike, nothing tells whose it was that the user removed.
                let is_no_change = [&self.seen, &self.became].iter().any(|tree| same(tree, left, at))
                    || (!left.nodes.contains_key(at) && same(&self.over, &self.became, at));
                assert!(is_kept || is_no_change, "`{at}`, changed after the promotion, is lost; {log:#?}");
            } else if related == 0 && !overlay.has_touched(at) {
                assert!(same(now, current, at), "`{at}` is not what the application has; {log:#?}");
            }
        }
    }
}

/// The paths at which two trees differ.
fn changed(before: &Tree, after: &Tree) -> Vec<String> {
    let both = before.nodes.keys().chain(after.nodes.keys());
    let mut changed: Vec<String> =
        both.filter(|at| before.nodes.get(*at) != after.nodes.get(*at)).cloned().collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Tells whether one path is the other, or lies below it.
fn is_related(a: &str, b: &str) -> bool {
    let lies_in = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
    a == b || lies_in(a, b) || lies_in(b, a)
}

fn life(seed: u64, way: Way) {
    let _named = Named(seed);
    let random = &mut Random::new(seed);
    let Some(fixture) = Fixture::live(way) else { return };
    let current = random_tree(random, 12);
    let version = fixture.baseline(SKILL, &current).version;
    if random.chance(20) {
        fixture.publish(Scope::Overlay, USER, SKILL, &random_tree(random, 8));
    }
    let versions = vec![(version, current.clone())];
    let seen = Tree::through(&fixture.skill(USER, SKILL));
    let mut life = Life { fixture, current: Some(current), versions, seen, inside: None, log: Vec::new() };
    for _ in 0..40 {
        life.step(random);
        life.check(random);
    }
    life.leave(random);
    life.fixture.store.close_views().unwrap();
    life.moves_on(life.current.clone(), |_| ());
    life.check(random);
    life.fixture.store.close_views().unwrap();
    life.fixture.assert_swept();
}

#[test]
fn a_skill_is_what_its_life_made_of_it_in_every_layer_and_view() {
    live_sequences(60, life);
}

#[test]
fn every_way_lives_the_same_life() {
    for way in WAYS {
        life(7, way);
    }
}
