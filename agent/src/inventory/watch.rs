//! Has anything come or gone where the host's resources lie?
//!
//! The kernel tells of names that come and go in a folder (inotify), so a new replica is listed within a second instead
//! of with the next look of the minute. Only that is asked for: what is written into a file, or opened, is no news of a
//! list, and a database folder sees thousands of those a second. (Libraries that watch files ask for all of it.)
//!
//! Watching is a help and never the truth. Every look reads the folders anew, so a queue of news that ran over needs no
//! care; and a folder that cannot be watched (too many of them, a network file system that does not tell) is looked into
//! each minute as before.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Folders that are watched; the kernel keeps about a kilobyte for each, and many systems allow a user 8192 in all.
const MAX_WATCHES: usize = 4096;
/// What is news: a name came or went, or the folder itself did.
const NEWS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The folders that are watched. Without a watcher (none was to be had) it only counts them.
#[derive(Debug)]
pub(super) struct Watches {
    watcher: Option<Arc<OwnedFd>>,
    /// The look that last wanted each.
    wanted: BTreeMap<i32, u64>,
    /// Most folders that are watched.
    most: usize,
    look: u64,
    refused: usize,
    why: Option<String>,
}

impl Watches {
    /// With a watcher, if the system has one for us.
    pub(super) fn new() -> Self {
        let (watcher, why) = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(watcher) => (Some(Arc::new(watcher)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { watcher, wanted: BTreeMap::new(), most: MAX_WATCHES, look: 0, refused: 0, why }
    }

    /// Where the news can be waited for. Absent: nowhere.
    pub(super) fn news(&self) -> Option<News> {
        self.watcher.clone().map(News)
    }

    /// A look begins.
    pub(super) fn begin(&mut self) {
        self.look += 1;
        self.refused = 0;
    }

    /// This look looks into the folder.
    pub(super) fn add(&mut self, folder: &Path) {
        let Some(watcher) = &self.watcher else {
            self.refused += 1;
            return;
        };
        match inotify::add_watch(watcher, folder, NEWS) {
            Ok(watch) if self.wanted.len() < self.most || self.wanted.contains_key(&watch) => {
                self.wanted.insert(watch, self.look);
            }
            Ok(watch) => {
                let _ = inotify::remove_watch(watcher, watch);
                let most = self.most;
                self.refuse(|| format!("there are more than {most}"));
            }
            // It went between two calls, or is none that can be entered: the walk tells why.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(Errno::NOSPC) => self.refuse(|| "the system's limit of watches is reached".to_owned()),
            Err(error) => self.refuse(|| error.to_string()),
        }
    }

    fn refuse(&mut self, why: impl FnOnce() -> String) {
        self.refused += 1;
        self.why.get_or_insert_with(why);
    }

    /// The look is over: folders that it did not look into are watched no more. What is to be told.
    pub(super) fn finish(&mut self) -> Option<String> {
        let look = self.look;
        if let Some(watcher) = &self.watcher {
            self.wanted.retain(|watch, wanted_by| {
                let stays = *wanted_by == look;
                if !stays {
                    // The kernel has forgotten those of folders that are gone.
                    let _ = inotify::remove_watch(watcher, *watch);
                }
                stays
            });
        }
        if self.refused == 0 {
            if self.watcher.is_some() {
                self.why = None;
            }
            return None;
        }
        let (refused, why) = (self.refused, self.why.as_deref().unwrap_or("unknown"));
        Some(format!("{refused} folders are not watched ({why}): what changes there is seen within a minute"))
    }
}

/// The news of the folders.
#[derive(Debug)]
pub(super) struct News(Arc<OwnedFd>);

impl News {
    /// Waits until there is some; for ever if it cannot be waited for. Only while this waits does news wake the agent.
    /// Cancel-safe.
    pub(super) async fn wait(&self) {
        #[expect(deprecated, reason = "its successor is unsafe; an owned descriptor is what that asks for")]
        let watcher = AsyncFd::with_interest(self.0.clone(), Interest::READABLE);
        // An error says that the runtime takes no more: the looks of each minute go on.
        let Ok(watcher) = watcher else {
            return std::future::pending().await;
        };
        while let Ok(mut ready) = watcher.readable().await {
            if self.take_all() {
                return;
            }
            ready.clear_ready();
        }
        std::future::pending().await
    }

    /// Whatever is told by now is taken care of by the look that follows.
    pub(super) fn forget(&self) {
        self.take_all();
    }

    /// Takes all that is told. Whether any of it is news.
    fn take_all(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut is_news = false;
        loop {
            match reader.next() {
                // That a watch has ended is what we did, or follows from what was told of the folder.
                Ok(event) => is_news |= !event.events().contains(ReadFlags::IGNORED),
                Err(Errno::INTR) => {}
                Err(_) => return is_news,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    fn watched(folders: &[&Path]) -> (Watches, News) {
        let mut watches = Watches::new();
        let news = watches.news().expect("a watcher");
        watches.begin();
        folders.iter().for_each(|folder| watches.add(folder));
        assert_eq!(watches.finish(), None);
        (watches, news)
    }

    async fn is_told(news: &News) -> bool {
        tokio::time::timeout(SHORT, news.wait()).await.is_ok()
    }

    #[tokio::test]
    async fn names_that_come_and_go_are_news_and_what_is_written_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let (_watches, news) = watched(&[folder.path()]);
        fs::write(&file, "").unwrap();
        tokio::time::timeout(LONG, news.wait()).await.expect("a new file");
        fs::write(&file, "more").unwrap();
        fs::read(&file).unwrap();
        assert!(!is_told(&news).await, "only its content changed");
        fs::rename(&file, folder.path().join("b.db")).unwrap();
        tokio::time::timeout(LONG, news.wait()).await.expect("another name");
        fs::remove_file(folder.path().join("b.db")).unwrap();
        tokio::time::timeout(LONG, news.wait()).await.expect("no file");
    }

    #[tokio::test]
    async fn a_folder_that_is_looked_into_no_more_is_watched_no_more() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut watches, news) = watched(&[one.path(), two.path()]);
        watches.begin();
        watches.add(two.path());
        assert_eq!(watches.finish(), None);
        assert!(!is_told(&news).await, "the end of a watch is no news");
        fs::write(one.path().join("a"), "").unwrap();
        assert!(!is_told(&news).await);
        fs::write(two.path().join("a"), "").unwrap();
        tokio::time::timeout(LONG, news.wait()).await.expect("the other is watched");
    }

    #[test]
    fn folders_that_cannot_be_watched_are_counted_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut watches =
            Watches { watcher: None, why: Some("too many open files".into()), ..Watches::new() };
        watches.begin();
        watches.add(folder.path());
        watches.add(folder.path());
        let told = watches.finish().unwrap();
        assert!(told.starts_with("2 folders are not watched (too many open files)"), "{told}");
        assert!(watches.news().is_none());
    }

    #[tokio::test]
    async fn more_folders_than_the_bound_are_told_and_the_first_stay_watched() {
        let folder = tempfile::tempdir().unwrap();
        let mut watches = Watches { most: 4, ..Watches::new() };
        let news = watches.news().expect("a watcher");
        for _ in 0..2 {
            watches.begin();
            for number in 0..7 {
                let one = folder.path().join(number.to_string());
                fs::create_dir_all(&one).unwrap();
                watches.add(&one);
            }
            assert!(
                watches.finish().unwrap().starts_with("3 folders are not watched (there are more than 4)")
            );
        }
        fs::write(folder.path().join("0/a"), "").unwrap();
        tokio::time::timeout(LONG, news.wait()).await.expect("the first is watched");
    }
}
