//! `holdfast dev`, from the real binary (design, section 13): the main job, what it prints, and its ends and beginnings.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use holdfast_server::dev::DataFolder;
use holdfast_tests::{folder, server::binary, wait};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    task::JoinHandle,
};

/// Two servers are started, one of them twice, and a broker's stop is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the private servers are started with, and their supervisors: their folder.
const MARK: &[u8] = b"HOLDFAST_PRIVATE_SERVER=";
const SCENES: [&str; 5] = ["committed", "staged now", "rolled back", "caller killed", "broker stopped"];

/// A `holdfast dev`, in a process group of its own as a shell would start it.
struct Dev {
    child: Child,
    pid: Pid,
    said: Arc<Mutex<String>>,
    listening: Vec<JoinHandle<()>>,
}

impl Dev {
    fn start(data: &Path, arguments: &[&str], environment: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(binary());
        command.arg("dev").arg("--data").arg(data).args(arguments);
        for (name, _) in std::env::vars_os() {
            // What this run exports for its tests is not the configuration of a development session.
            if name.to_string_lossy().starts_with("HOLDFAST_") {
                command.env_remove(name);
            }
        }
        command.envs(environment.iter().copied()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let said = Arc::default();
        let listening = vec![
            tokio::spawn(listen(child.stdout.take().unwrap(), Arc::clone(&said))),
            tokio::spawn(listen(child.stderr.take().unwrap(), Arc::clone(&said))),
        ];
        let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
        Self { child, pid, said, listening }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    async fn says(&mut self, words: &str) -> String {
        wait::until(&format!("{words:?}"), PATIENCE, || {
            let said = self.said();
            let ended = self.child.try_wait().unwrap();
            async move {
                assert!(ended.is_none() || said.contains(words), "it ended ({ended:?}): {said}");
                if said.contains(words) { Ok(said) } else { Err(said) }
            }
        })
        .await
    }

    /// Its end; everything that it said was heard then.
    async fn ended(&mut self) -> ExitStatus {
        let listening = std::mem::take(&mut self.listening);
        let ended = tokio::time::timeout(PATIENCE, async {
            let status = self.child.wait().await.unwrap();
            for one in listening {
                one.await.unwrap();
            }
            status
        });
        ended.await.unwrap_or_else(|_| panic!("it did not end: {}", self.said.lock().unwrap()))
    }

    /// What a terminal does on Ctrl-C: everybody in the group hears it.
    fn ctrl_c(&self) {
        killpg(self.pid, Signal::SIGINT).unwrap();
    }
}

async fn listen(from: impl AsyncRead + Unpin, said: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("[dev] {line}");
        let mut said = said.lock().unwrap();
        said.push_str(&line);
        said.push('\n');
    }
}

/// Every process that was started for this folder.
fn servers_of(data: &Path) -> BTreeSet<Pid> {
    let data = data.as_os_str().as_bytes();
    let of_it = |pid: &Pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .filter_map(|one| one.strip_prefix(MARK))
            .any(|folder| folder.starts_with(data))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(of_it)
        .collect()
}

fn supervisors_of(data: &Path) -> BTreeSet<Pid> {
    let is_shell = |pid: &Pid| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .unwrap_or_default()
            .windows(13)
            .any(|part| part == b"exec >/dev/nu")
    };
    servers_of(data).into_iter().filter(is_shell).collect()
}

async fn nothing_is_left(data: &Path) {
    wait::until_equal("processes of the folder", wait::LONG, BTreeSet::new(), || async { servers_of(data) })
        .await;
}

/// The folder and its one absolute name.
fn data() -> (TempDir, std::path::PathBuf) {
    let folder = folder::scratch();
    let path = fs::canonicalize(folder.path()).unwrap().join("data");
    (folder, path)
}

/// Of the lines that say what held, what they are about.
fn scenes(text: &str) -> Vec<String> {
    let held = text.lines().filter_map(|line| line.trim_start().strip_prefix("ok  "));
    held.map(|line| line.split("  ").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn heavy_dev_once_plays_the_main_job_and_exits_with_zero() {
    let (_folder, data) = data();
    let mut dev = Dev::start(&data, &["--once"], &[]);

    let status = dev.ended().await;

    assert!(status.success(), "{status}\n{}", dev.said());
    assert_eq!(scenes(&dev.said()), SCENES);
    // Log lines are in the file, and not between those.
    assert!(!dev.said().contains("INFO") && !dev.said().contains("WARN"), "{}", dev.said());
    assert!(fs::read_to_string(data.join("server.log")).unwrap().contains("listening"));
    nothing_is_left(&data).await;
}

#[test]
fn the_documents_show_what_dev_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for document in ["README.md", "docs/quickstart.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        assert_eq!(scenes(&text), SCENES, "{document}");
    }
}

/// The lines that were printed to be pasted: from the first that begins so to the empty one after it.
fn printed(said: &str, begin: &str) -> String {
    let from = said.lines().skip_while(|line| !line.starts_with(begin));
    from.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

async fn pasted(lines: &str) -> String {
    let output = Command::new("sh").args(["-c", lines]).output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success() && err.is_empty(), "{lines}\n{out}\n{err}");
    out
}

/// Where everything listens, as it was printed.
fn endpoints(said: &str) -> String {
    printed(said, "running until Ctrl-C:")
}

#[tokio::test]
async fn heavy_dev_survives_kill_9_of_everything_that_watches_and_its_lines_work_as_they_stand() {
    let (_folder, data) = data();
    let grpcurl = std::env::var("HOLDFAST_TEST_GRPCURL").unwrap();
    let arguments = ["--grpcurl", grpcurl.as_str()];
    let mut first = Dev::start(&data, &arguments, &[]);
    let said = first.says("\nEND\n").await;
    assert_eq!(scenes(&said), SCENES);

    // StageNow and GetEvent, then psql's transaction.
    let answers = pasted(&printed(&said, &grpcurl)).await;
    assert!(answers.contains("OUTCOME_STAGED") && answers.contains("EVENT_STATE_"), "{answers}");
    let answers = pasted(&printed(&said, "psql ")).await;
    assert!(answers.contains("OUTCOME_STAGED") && answers.contains("COMMIT"), "{answers}");
    // The folder is taken.
    let mut second = Dev::start(&data, &["--fresh"], &[]);
    let refused = second.ended().await;
    let words = format!("another `holdfast dev` (process {})", first.pid);
    assert!(refused.code() == Some(1) && second.said().contains(&words), "{}", second.said());

    // Nobody is left who would end the servers. (The first kill lets nobody begin.)
    let supervisors = supervisors_of(&data);
    assert_eq!(supervisors.len(), 6, "of three servers, and the watchers: {supervisors:?}");
    for pid in &supervisors {
        kill(*pid, Signal::SIGSTOP).unwrap();
    }
    for pid in supervisors.iter().chain([&first.pid]) {
        kill(*pid, Signal::SIGKILL).unwrap();
    }
    first.ended().await;
    assert!(!servers_of(&data).is_empty(), "orphans");
    let mut again = Dev::start(&data, &arguments, &[]);
    let after = again.says("\nEND\n").await;

    assert!(after.contains("processes that an earlier session had left"), "{after}");
    assert_eq!(endpoints(&after), endpoints(&said));
    let url = printed(&after, "psql ").split_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(pasted(&format!("psql -X -A -t -c 'TABLE hello' {url}")).await, "world\n");
    again.ctrl_c();
    assert_eq!(again.ended().await.code(), Some(0), "{}", again.said());
    nothing_is_left(&data).await;

    // A machine that went down leaves a pid file, and the number may be anybody's by now.
    let stale = format!("{}\n{}\n", std::process::id(), data.join("postgres/data").display());
    fs::write(data.join("postgres/data/postmaster.pid"), stale).unwrap();
    let mut last = Dev::start(&data, &["--once"], &[]);
    assert!(last.ended().await.success(), "{}", last.said());
    nothing_is_left(&data).await;
}

#[tokio::test]
async fn heavy_ctrl_c_while_dev_starts_leaves_nothing_behind() {
    let (_folder, data) = data();
    for moment in ["the cluster is made", "the servers start"] {
        let mut dev = Dev::start(&data, &[], &[]);
        wait::until(moment, PATIENCE, || async {
            let come = match moment {
                "the cluster is made" => data.join("postgres/data.new").exists(),
                _ => data.join("postgres/data/postmaster.pid").exists() && servers_of(&data).len() > 6,
            };
            if come { Ok(()) } else { Err(dev.said()) }
        })
        .await;

        dev.ctrl_c();

        assert_eq!(dev.ended().await.code(), Some(130), "{moment}: {}", dev.said());
        nothing_is_left(&data).await;
    }
    // And what was half made is no harm.
    let mut dev = Dev::start(&data, &["--once"], &[]);
    assert!(dev.ended().await.success(), "{}", dev.said());
}

#[tokio::test]
async fn what_is_missing_on_the_machine_is_named_before_anything_is_made() {
    let (folder, data) = data();
    let nowhere = folder.path().join("nowhere");
    let environment = [("HOLDFAST_PG_BIN", nowhere.as_path()), ("HOLDFAST_RABBITMQ_BIN", nowhere.as_path())];

    let mut dev = Dev::start(&data, &[], &environment);

    assert_eq!(dev.ended().await.code(), Some(1));
    let said = dev.said();
    for words in [
        "PostgreSQL (initdb, postgres) was not found (looked in HOLDFAST_PG_BIN=",
        "apt-get install postgresql",
        "rabbitmq-server was not found (looked in HOLDFAST_RABBITMQ_BIN=",
        "apt-get install rabbitmq-server",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(!data.exists());
}

/// Everything below a folder.
fn listing(folder: &Path) -> BTreeSet<std::path::PathBuf> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(listing(&entry.path()));
        }
        all.insert(entry.path());
    }
    all
}

#[tokio::test]
async fn a_folder_that_no_session_made_is_not_touched_also_by_fresh() {
    let (_folder, data) = data();
    // Somebody's own servers, by names that a session uses, too.
    for name in ["postgres", "rabbitmq"] {
        fs::create_dir_all(data.join(name)).unwrap();
        fs::write(data.join(name).join("thesis.txt"), "years of work").unwrap();
    }
    let before = listing(&data);

    for arguments in [&["--once"][..], &["--once", "--fresh"]] {
        let mut dev = Dev::start(&data, arguments, &[]);

        assert_eq!(dev.ended().await.code(), Some(1), "{}", dev.said());
        let said = dev.said();
        assert!(said.contains("and no folder of `holdfast dev`: left as it is"), "{said}");
        assert_eq!(listing(&data), before);
    }
    assert_eq!(fs::read_to_string(data.join("postgres/thesis.txt")).unwrap(), "years of work");
}

#[tokio::test]
async fn fresh_deletes_what_is_a_sessions_and_nothing_else() {
    let (_folder, data) = data();
    drop(DataFolder::take(&data).unwrap());
    fs::write(data.join("thesis.txt"), "years of work").unwrap();

    let mut dev = Dev::start(&data, &["--fresh"], &[]);

    assert_eq!(dev.ended().await.code(), Some(1));
    let said = dev.said();
    assert!(said.contains("thesis.txt, which is none of a session's files"), "{said}");
    assert_eq!(fs::read_to_string(data.join("thesis.txt")).unwrap(), "years of work");
}
