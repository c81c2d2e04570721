//! The board: one small file for each host identity and user.
//!
//! It has a page of commands, which people write, and a slot for each process, which only that
//! process writes. It is read and written with calls and not mapped: another program may cut a file
//! short at any time, and the next touch of the mapping would end the job with a bus error. Whoever
//! has a slot holds a lock on it, which the kernel takes back when the process ends, however that
//! happens; so a slot is free exactly when nobody lives in it. Each part carries a checksum, which
//! tells what is whole from what is torn or broken.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};

use super::record::{NicCommand, ProcessRecord, decode_commands, encode_commands};
use crate::config::{HostIdentity, first_eight_bytes};

/// Of this layout and of everything that is written in it.
const VERSION: u32 = 1;
const MAGIC: &str = "R2CCL board ";
const HEADER_BYTES: usize = 256;
const COMMANDS_AT: u64 = 4096;
const PART_BYTES: usize = 8192;
const SLOTS_AT: u64 = COMMANDS_AT + PART_BYTES as u64;
/// Processes of one user on one host that can be shown.
const SLOTS: u64 = 64;
const BOARD_BYTES: u64 = SLOTS_AT + SLOTS * PART_BYTES as u64;
/// Checksum and length before the text of a part.
const PART_HEAD_BYTES: usize = 12;
/// The longest text of a part.
const TEXT_BYTES_MAX: usize = PART_BYTES - PART_HEAD_BYTES;
/// Reads of a part that is being written meanwhile.
const READS_MAX: usize = 5;

/// An open board.
pub struct Board {
    file: File,
    host: String,
}

/// File of the board of a host in `folder`.
fn file_name(user: u32, identity: &HostIdentity) -> String {
    format!("r2ccl-{user}-{:016x}.board", identity.id)
}

impl Board {
    /// Opens the board of this user and host, and makes it if need be. The error is a clause.
    pub fn join(folder: &Path, identity: &HostIdentity) -> Result<Self, String> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).map_err(|error| error.to_string())?;
        if limit < BOARD_BYTES {
            // The kernel's answer to a write beyond the limit is a signal that ends the process.
            return Err("files may not grow so large here (ulimit -f)".into());
        }
        let user = nix::unistd::geteuid().as_raw();
        let path = folder.join(file_name(user, identity));
        let file = open(&path, user, true)?;
        let header = header(&identity.name);
        if file.metadata().map_err(said)?.len() == 0 {
            // Others may be about to write the very same bytes.
            file.write_all_at(&header, 0).map_err(said)?;
        }
        let host = check_header(&file)?;
        Ok(Self { file, host })
    }

    /// Opens all boards in `folder` that this user may look at: its own, or all for root. With each
    /// file that is no board comes the reason.
    pub fn open_all(folder: &Path) -> Vec<(PathBuf, Result<Self, String>)> {
        let own = nix::unistd::geteuid();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut boards: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                let rest = name.to_str()?.strip_prefix("r2ccl-")?;
                let (user, _) = rest.strip_suffix(".board")?.split_once('-')?;
                let user: u32 = user.parse().ok()?;
                let is_ours = own.is_root() || own.as_raw() == user;
                let open_one = |path: &Path| {
                    let file = open(path, user, false)?;
                    let host = check_header(&file)?;
                    Ok(Self { file, host })
                };
                let path = entry.path();
                is_ours.then(|| (path.clone(), open_one(&path)))
            })
            .collect();
        boards.sort_by(|(one, _), (other, _)| one.cmp(other));
        boards
    }

    /// Name of the host in reports.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Takes a slot, for as long as the process lives.
    pub fn claim(&self) -> Result<u64, String> {
        for slot in 0..SLOTS {
            if lock(&self.file, slot_at(slot)).map_err(said)? {
                return Ok(slot);
            }
        }
        Err(format!("all {SLOTS} places are taken"))
    }

    /// Writes this process's slot.
    pub fn publish(&self, slot: u64, text: &str) -> Result<(), String> {
        write_part(&self.file, slot_at(slot), text).map_err(said)
    }

    /// The processes that live. One that is just writing for the first time may be missing.
    pub fn processes(&self) -> Vec<ProcessRecord> {
        let alive = (0..SLOTS).filter(|slot| is_locked(&self.file, slot_at(*slot)));
        let text = |slot| read_part(&self.file, slot_at(slot));
        alive
            .filter_map(|slot| ProcessRecord::decode(&text(slot)?))
            .collect()
    }

    /// What NICs are told; `None` while that is not to be read.
    pub fn commands(&self) -> Option<Vec<NicCommand>> {
        decode_commands(&read_part(&self.file, COMMANDS_AT)?)
    }

    /// Changes what NICs are told, and returns false while somebody else does. What cannot be read
    /// is made anew.
    pub fn change_commands(
        &self,
        change: impl FnOnce(&mut Vec<NicCommand>),
    ) -> Result<bool, String> {
        if !lock(&self.file, COMMANDS_AT).map_err(said)? {
            return Ok(false);
        }
        let mut commands = self.commands().unwrap_or_default();
        change(&mut commands);
        let written = write_part(&self.file, COMMANDS_AT, &encode_commands(&commands));
        let unlocked = set_lock(&self.file, COMMANDS_AT, libc::F_UNLCK);
        written.and(unlocked).map_err(said)?;
        Ok(true)
    }
}

fn slot_at(slot: u64) -> u64 {
    SLOTS_AT + slot * PART_BYTES as u64
}

fn said(error: io::Error) -> String {
    error.to_string()
}

/// Opens a file of `user`'s and nobody else's; never through a link.
fn open(path: &Path, user: u32, create: bool) -> Result<File, String> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(said)?;
    let about = file.metadata().map_err(said)?;
    if !about.is_file() || about.uid() != user || about.mode() & 0o022 != 0 {
        return Err("it is not a file that only this user can write".into());
    }
    Ok(file)
}

fn header(host: &str) -> [u8; HEADER_BYTES] {
    let text = format!("{MAGIC}{VERSION}\nhost {host}\n");
    let mut header = [0; HEADER_BYTES];
    let len = text.len().min(HEADER_BYTES);
    header[..len].copy_from_slice(&text.as_bytes()[..len]);
    header
}

/// The host's name from the header of a board of this version.
fn check_header(file: &File) -> Result<String, String> {
    let mut found = [0; HEADER_BYTES];
    file.read_exact_at(&mut found, 0)
        .map_err(|_| "it is no board".to_owned())?;
    let text = std::str::from_utf8(&found).unwrap_or_default();
    let version = text
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.lines().next());
    let version = version.ok_or("it is no board")?;
    if version.parse() != Ok(VERSION) {
        return Err("it belongs to another version of R2CCL".into());
    }
    let host = text
        .lines()
        .nth(1)
        .and_then(|line| line.strip_prefix("host "));
    let host = host.filter(|host| header(host) == found);
    host.map(str::to_owned).ok_or("it is no board".into())
}

fn checksum(text: &[u8]) -> [u8; 8] {
    first_eight_bytes(&blake3::hash(text)).to_le_bytes()
}

fn write_part(file: &File, at: u64, text: &str) -> io::Result<()> {
    let text = text.as_bytes();
    if text.len() > TEXT_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut part = Vec::with_capacity(PART_HEAD_BYTES + text.len());
    part.extend(checksum(text));
    part.extend((text.len() as u32).to_le_bytes());
    part.extend(text);
    file.write_all_at(&part, at)
}

/// The text of a part; `None` where nobody has written, and where what stands there is not whole
/// after a few looks.
fn read_part(file: &File, at: u64) -> Option<String> {
    let text = (0..READS_MAX).find_map(|_| {
        let mut head = [0; PART_HEAD_BYTES];
        file.read_exact_at(&mut head, at).ok()?;
        if head == [0; PART_HEAD_BYTES] {
            return Some(None);
        }
        let (sum, len) = head.split_first_chunk::<8>()?;
        let len = u32::from_le_bytes(*len.first_chunk()?) as usize;
        let mut text = vec![0; Some(len).filter(|len| *len <= TEXT_BYTES_MAX)?];
        file.read_exact_at(&mut text, at + PART_HEAD_BYTES as u64)
            .ok()?;
        (checksum(&text) == *sum).then(|| String::from_utf8(text).ok())
    });
    text.flatten()
}

fn byte_at(at: u64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

fn set_lock(file: &File, at: u64, kind: i32) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&byte_at(at, kind)))?;
    Ok(())
}

/// Locks a byte for this process; false when another one has it.
fn lock(file: &File, at: u64) -> io::Result<bool> {
    match set_lock(file, at, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another process has locked a byte.
fn is_locked(file: &File, at: u64) -> bool {
    let mut found = byte_at(at, libc::F_WRLCK);
    let asked = fcntl(file, FcntlArg::F_GETLK(&mut found));
    asked.is_ok() && found.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn identity() -> HostIdentity {
        Settings::from_pairs([("R2CCL_HOST_ID", "h7")]).host_identity()
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    fn board_file(folder: &Path) -> PathBuf {
        let user = nix::unistd::geteuid().as_raw();
        folder.join(file_name(user, &identity()))
    }

    fn refusal(folder: &Path) -> String {
        let joined = Board::join(folder, &identity());
        joined.err().expect("not a board")
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = folder();
        let board = Board::join(folder.path(), &identity()).expect("a board");
        assert_eq!(board.host(), "h7");
        assert_eq!(board.claim(), Ok(0));
        board.publish(3, "some text").expect("room");
        let other = Board::join(folder.path(), &identity()).expect("the same board");
        let text = read_part(&other.file, slot_at(3));
        assert_eq!(text.as_deref(), Some("some text"));
        assert_eq!(other.commands(), None, "nothing was ever said");
        let all = Board::open_all(folder.path());
        assert_eq!(all.len(), 1);
        assert!(all[0].1.is_ok());
        let mode = board.file.metadata().expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn torn_and_broken_parts_are_not_read() {
        let folder = folder();
        let board = Board::join(folder.path(), &identity()).expect("a board");
        board.publish(0, "some text").expect("room");
        let text_at = slot_at(0) + PART_HEAD_BYTES as u64;
        board.file.write_all_at(b"S", text_at).expect("room");
        assert_eq!(read_part(&board.file, slot_at(0)), None);
        board.publish(0, "some text").expect("room");
        let length = u32::MAX.to_le_bytes();
        board
            .file
            .write_all_at(&length, slot_at(0) + 8)
            .expect("room");
        assert_eq!(read_part(&board.file, slot_at(0)), None);
        // Cut short by somebody: nothing to read, no signal, and it can be written again.
        board.file.set_len(7).expect("a file");
        assert_eq!(read_part(&board.file, slot_at(0)), None);
        board.publish(0, "again").expect("room");
        let text = read_part(&board.file, slot_at(0));
        assert_eq!(text.as_deref(), Some("again"));
        assert!(board.publish(0, &"x".repeat(PART_BYTES)).is_err());
    }

    #[test]
    fn what_is_no_board_is_left_alone() {
        let folder = folder();
        let path = board_file(folder.path());
        for (content, reason) in [
            (&b"garbage"[..], "no board"),
            (&[0xff; 4096], "no board"),
            (&[b'R'; 4096], "no board"),
        ] {
            std::fs::write(&path, content).expect("a file");
            assert!(refusal(folder.path()).contains(reason));
            assert_eq!(std::fs::read(&path).expect("a file"), content);
        }
        let mut newer = header("h7");
        newer[MAGIC.len()] = b'9';
        std::fs::write(&path, newer).expect("a file");
        assert!(refusal(folder.path()).contains("another version"));
        std::fs::remove_file(&path).expect("a file");
        std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
        assert!(!refusal(folder.path()).is_empty());
        std::fs::remove_file(&path).expect("a link");
        std::fs::create_dir(&path).expect("a folder");
        assert!(!refusal(folder.path()).is_empty());
        assert!(!refusal(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn a_file_that_others_can_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        drop(Board::join(folder.path(), &identity()).expect("a board"));
        let path = board_file(folder.path());
        let open_to_all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, open_to_all).expect("ours");
        assert!(refusal(folder.path()).contains("only this user"));
    }

    #[test]
    fn commands_change_one_at_a_time() {
        let folder = folder();
        let board = Board::join(folder.path(), &identity()).expect("a board");
        let command = |name: &str| NicCommand {
            name: name.into(),
            is_drained: true,
            drain_serial: 1,
            order: Default::default(),
            order_serial: 0,
        };
        for name in ["a", "b"] {
            let changed = board.change_commands(|commands| commands.push(command(name)));
            assert_eq!(changed, Ok(true));
        }
        let expected = vec![command("a"), command("b")];
        assert_eq!(board.commands(), Some(expected));
        // Garbage is replaced.
        board
            .file
            .write_all_at(&[9; 64], COMMANDS_AT)
            .expect("room");
        assert_eq!(board.commands(), None);
        let changed = board.change_commands(|commands| commands.push(command("c")));
        assert_eq!(changed, Ok(true));
        assert_eq!(board.commands(), Some(vec![command("c")]));
    }
}
