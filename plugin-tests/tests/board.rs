//! What running jobs show on their boards and do when they are told: NICs that are drained, and
//! NICs that break on command. The jobs check every byte.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use r2ccl_plugin_tests::command::result;
use r2ccl_plugin_tests::job::Job;
use tempfile::TempDir;

/// Long enough for several faults: a NIC moves no more than 125 MB a second.
const STREAM: &str = "--pattern stream --sizes 1M --iterations 1300 --check";
const MIB: u64 = 1 << 20;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A job whose data moves over `soft0`, with `soft1` ready to stand in.
fn stream(board: &TempDir) -> Job {
    let mut job = Job::start(board.path(), STREAM, &[]);
    job.wait("both paths", |job| {
        let serves = |nic| job.number(nic, "paths_in_service") == 1;
        ["h0/soft0", "h0/soft1", "h1/soft0", "h1/soft1"]
            .into_iter()
            .all(serves)
    });
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    job
}

/// The NIC has a fault, which is found, and traffic goes on elsewhere; then it is well, and back.
fn breaks(job: &mut Job, nic: &str, fault: &str) {
    let before = job.number(nic, "failovers");
    job.tell(&format!("chaos {nic} {fault}"));
    job.wait(&format!("{fault} of {nic} to be found"), |job| {
        job.number(nic, "failovers") > before
    });
    job.wait_for_more("h0/soft1", "bytes_sent", 8 * MIB);
    let back = job.number(nic, "failbacks");
    job.tell(&format!("chaos {nic} restore"));
    job.wait(&format!("the return of {nic}"), |job| {
        job.number(nic, "failbacks") > back
    });
    job.wait_for_more("h0/soft0", "bytes_sent", 8 * MIB);
}

/// PROTOCOL R50 to R59: the NIC of either side is lost and comes back.
#[test]
fn a_killed_nic_is_left_and_taken_back() {
    let board = folder();
    let mut job = stream(&board);
    breaks(&mut job, "h0/soft0", "kill");
    breaks(&mut job, "h1/soft0", "kill");
    let said = job.finish();
    assert_eq!(said.matches("soft0: port Down").count(), 2, "{said}");
}

/// PROTOCOL R60, R61: nobody is told; only the work that does not get on shows it.
#[test]
fn silent_faults_are_found() {
    let board = folder();
    let mut job = stream(&board);
    for fault in ["black-hole", "cut send", "cut receive"] {
        breaks(&mut job, "h0/soft0", fault);
    }
    let said = job.finish();
    assert!(!said.contains("port Down"), "{said}");
}

/// Connections that are made while a NIC of either end is dead begin elsewhere; the NIC is used
/// when it is well.
#[test]
fn connections_are_made_while_a_nic_is_dead() {
    let board = folder();
    // Connects, sends, closes, again and again.
    let arguments = "--pattern abort --iterations 400 --sizes 64K";
    let mut job = Job::start(board.path(), arguments, &[]);
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    for dead in ["h0/soft0", "h1/soft0", "h0/soft1", "h1/soft1"] {
        let well = if dead.ends_with('0') {
            "soft1"
        } else {
            "soft0"
        };
        job.tell(&format!("chaos {dead} kill"));
        let still = job.number(dead, "bytes_sent");
        job.wait_for_more(&format!("h0/{well}"), "bytes_sent", 4 * MIB);
        assert_eq!(job.number(dead, "bytes_sent"), still, "{dead}");
        job.tell(&format!("chaos {dead} restore"));
    }
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    job.kill();
}

/// No NIC is left: that is said, to both sides, at once.
#[test]
fn no_connection_is_made_without_a_nic() {
    let board = folder();
    let arguments = "--pattern abort --iterations 100000 --sizes 64K";
    let mut job = Job::start(board.path(), arguments, &[]);
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    for nic in ["h0/soft0", "h0/soft1"] {
        // It may have ended before it can answer.
        job.command(&format!("chaos {nic} kill"));
    }
    let output = job.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = job.said();
    assert!(said.contains("its link is down"), "{said}");
}

#[test]
fn a_nic_that_flaps_does_no_harm() {
    let board = folder();
    let mut job = stream(&board);
    job.tell("chaos h0/soft0 flap 600ms");
    job.wait("three losses and two returns", |job| {
        job.number("h0/soft0", "failovers") >= 3 && job.number("h0/soft0", "failbacks") >= 2
    });
    job.tell("chaos h0/soft0 restore");
    job.wait("the last return", |job| {
        job.number("h0/soft0", "paths_in_service") == 1
    });
    job.wait_for_more("h0/soft0", "bytes_sent", 8 * MIB);
    job.finish();
}

/// What `h0/soft0` sends in a second, measured for half of one.
fn rate(job: &mut Job) -> f64 {
    let (before, start) = (job.number("h0/soft0", "bytes_sent"), Instant::now());
    job.wait("half a second", |_| {
        start.elapsed() >= Duration::from_millis(500)
    });
    let moved = job.number("h0/soft0", "bytes_sent") - before;
    moved as f64 / start.elapsed().as_secs_f64()
}

#[test]
fn a_slow_nic_is_as_slow_as_told() {
    let board = folder();
    // Without a way out.
    let settings = [("R2CCL_ROUTING_ALGO", "static")];
    let arguments = "--pattern stream --sizes 64K --iterations 14000 --check";
    let mut job = Job::start(board.path(), arguments, &settings);
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    job.tell("chaos h0/soft0 slow 80M");
    let slow = rate(&mut job);
    // What was acknowledged late, and the first burst.
    assert!(slow < 13e6, "{slow} bytes a second");
    assert!(slow > 1e6, "{slow} bytes a second");
    job.tell("chaos h0/soft0 restore");
    job.wait_for_more("h0/soft0", "bytes_sent", 32 * MIB);
    job.finish();
}

/// Whoever is told, sender or receiver: what is under way finishes, and nothing is sent twice.
#[test]
fn a_drained_nic_carries_nothing_and_nothing_is_replayed() {
    let board = folder();
    let mut job = stream(&board);
    for nic in ["h0/soft0", "h1/soft0"] {
        job.tell(&format!("drain {nic}"));
        let still = job.number("h0/soft0", "bytes_sent");
        job.wait_for_more("h0/soft1", "bytes_sent", 16 * MIB);
        assert_eq!(job.number("h0/soft0", "bytes_sent"), still, "{nic}");
        job.tell(&format!("undrain {nic}"));
        job.wait_for_more("h0/soft0", "bytes_sent", 16 * MIB);
    }
    for nic in ["h0/soft0", "h0/soft1", "h1/soft0", "h1/soft1"] {
        assert_eq!(job.number(nic, "failovers"), 0, "{nic}");
        assert_eq!(job.number(nic, "paths_in_service"), 1, "{nic}");
    }
    // Once the job ends, its paths end one after the other.
    let said = job.said();
    assert!(!said.contains("has failed"), "{said}");
    job.finish();
}

#[test]
fn a_drain_outlives_its_job_and_the_last_path_carries_on() {
    let board = folder();
    let mut job = stream(&board);
    job.tell("drain h0/soft0");
    let output = job.command("drain h0/soft1 --timeout 1 --json");
    assert_eq!(output.status.code(), Some(1));
    let answer = result(&output, "drain");
    assert!(answer["paths_leaving"].as_u64() > Some(0), "{answer:#}");
    assert_eq!(job.number("h0/soft0", "failovers"), 0);
    job.tell("undrain h0/soft1");
    job.kill();

    let mut job = stream_that_is_drained(&board);
    job.wait_for_more("h0/soft1", "bytes_sent", 8 * MIB);
    let still = job.number("h0/soft0", "bytes_sent");
    job.wait_for_more("h0/soft1", "bytes_sent", 8 * MIB);
    assert_eq!(job.number("h0/soft0", "bytes_sent"), still);
    job.tell("undrain h0/soft0");
    job.wait_for_more("h0/soft0", "bytes_sent", 8 * MIB);
    assert_eq!(job.number("h0/soft0", "failovers"), 0);
    job.kill();
}

fn stream_that_is_drained(board: &TempDir) -> Job {
    let mut job = Job::start(board.path(), STREAM, &[]);
    job.wait("the word of the drain", |job| {
        job.said().contains("soft0: drained")
    });
    job
}

#[test]
fn commands_say_why_they_do_nothing() {
    let board = folder();
    let settings = [("R2CCL_CHAOS", "0")];
    let mut job = Job::start(board.path(), STREAM, &settings);
    job.wait_for_more("h0/soft0", "bytes_sent", MIB);
    let refused = |job: &Job, arguments: &str, code: i32, reason: &str| {
        let output = job.command(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(reason), "{arguments}: {said}");
    };
    refused(&job, "chaos h0/soft0 kill", 1, "R2CCL_CHAOS=1");
    refused(
        &job,
        "drain soft7",
        2,
        "h0/soft0, h0/soft1, h1/soft0, h1/soft1",
    );
    refused(&job, "drain soft0", 2, "say which one: h0/soft0, h1/soft0");
    refused(&job, "chaos h0/soft0 flap 5ms", 2, "at least");
    assert_eq!(job.number("h0/soft0", "failovers"), 0);
    job.kill();
}

/// The board of `h0` in a folder.
fn board_of_h0(folder: &Path) -> PathBuf {
    let mut job = Job::start(folder, STREAM, &[]);
    job.wait_for_more("h0/soft0", "bytes_sent", 0);
    job.wait("a place on the board", |job| {
        job.number("h0/soft0", "connections") > 0
    });
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let found = paths.into_iter().find(|path| {
        let text = std::fs::read(path).expect("a board");
        text.windows(8).any(|word| word == b"host h0\n")
    });
    kill_and_wait(job);
    found.expect("the board of h0")
}

/// How many processes each board shows.
fn processes(job: &Job) -> Vec<usize> {
    let status = job.status();
    let hosts = status["hosts"].as_array().expect("a list").iter();
    let lists = hosts.map(|host| host["processes"].as_array().expect("a list").len());
    lists.collect()
}

/// A process that is killed takes a moment to end, and holds its place for so long.
fn kill_and_wait(mut job: Job) {
    job.kill();
    let start = Instant::now();
    while processes(&job) != [0, 0] {
        assert!(start.elapsed() < Duration::from_secs(10), "they are shown");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SHORT: &str = "--pattern stream --sizes 64K --iterations 300 --check";

/// A job on whose board something is wrong says so once in each process, and goes on.
fn goes_on_without(board: &Path, complaints: usize, reason: &str) {
    let said = Job::start(board, SHORT, &[]).finish();
    assert_eq!(said.matches("no board in").count(), complaints, "{said}");
    assert!(said.contains(reason), "{said}");
}

#[test]
fn a_bad_board_disturbs_nobody() {
    let folder = folder();
    let path = board_of_h0(folder.path());
    std::fs::write(&path, "garbage").expect("ours");
    goes_on_without(folder.path(), 1, "it is no board");
    let content = std::fs::read(&path).expect("a file");
    assert_eq!(content, b"garbage");
    std::fs::write(&path, [b"R2CCL board 9\nhost h0\n", &[0; 234][..]].concat()).expect("ours");
    goes_on_without(folder.path(), 1, "another version");
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "").expect("ours");
    std::fs::remove_file(&path).expect("ours");
    std::os::unix::fs::symlink(&precious, &path).expect("ours");
    goes_on_without(folder.path(), 1, "symbolic links");
    let about = precious.metadata().expect("a file");
    assert_eq!(about.len(), 0, "something was written through the link");
    goes_on_without(&precious, 2, "Not a directory");
    goes_on_without(Path::new("/nowhere"), 2, "No such file");
}

#[test]
fn no_room_for_a_board_disturbs_nobody() {
    let folder = folder();
    let path = folder.path().display();
    let product = |file: PathBuf| file.display().to_string();
    let job = format!(
        "{} bench --json {SHORT} --plugin {}",
        product(r2ccl_plugin_tests::plugin::command()),
        product(r2ccl_plugin_tests::plugin::path()),
    );
    let run = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .env("R2CCL_FABRIC", "soft")
            .env("R2CCL_SOFT_NICS", "127.0.0.2,127.0.0.3")
            .env("NCCL_SOCKET_IFNAME", "lo")
            .env("R2CCL_BOARD", folder.path())
            .output()
            .expect("unshare is installed")
    };
    if !run("true").status.success() {
        println!("skipped: no mount namespace to be had here");
        return;
    }
    // A page for the head of the file, none for what a process shows; then a limit whose
    // overstepping would be a signal.
    let full = format!("mount -t tmpfs -o size=4k,nr_inodes=9 none {path} && exec {job}");
    let limited = format!("ulimit -f 64 && exec {job}");
    for (script, reason) in [(full, "No space left"), (limited, "ulimit -f")] {
        let output = run(&script);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(result(&output, &script)["good"], true, "{said}");
        assert_eq!(said.matches("no board in").count(), 2, "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

/// Somebody cuts the file short and fills it with garbage while the job runs.
#[test]
fn a_board_that_breaks_disturbs_nobody() {
    let folder = folder();
    let path = board_of_h0(folder.path());
    let mut job = stream(&folder);
    let open = || -> File {
        let file = OpenOptions::new().write(true).open(&path);
        file.expect("ours")
    };
    let length = path.metadata().expect("a file").len() as usize;
    for content in [vec![0xff; length], vec![b'1'; length]] {
        open().write_all_at(&content, 0).expect("room");
        job.wait_for_more("h1/soft0", "bytes_received", 8 * MIB);
    }
    open().set_len(0).expect("ours");
    job.wait_for_more("h1/soft0", "bytes_received", 8 * MIB);
    open().set_len(7).expect("ours");
    let said = job.finish();
    assert!(!said.contains("no board in"), "{said}");
}

/// Who is killed leaves nothing that others would take for a process.
#[test]
fn the_place_of_a_killed_process_is_free() {
    let folder = folder();
    let path = board_of_h0(folder.path());
    let before = path.metadata().expect("a file").len();
    for _ in 0..3 {
        let job = stream(&folder);
        assert_eq!(processes(&job), [1, 1]);
        kill_and_wait(job);
    }
    let after = path.metadata().expect("a file").len();
    assert!(after < before + 1024, "{before} bytes, then {after}");
}
