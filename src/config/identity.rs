//! Who this host is: keys the board and the handle, and names NICs in reports.

use super::{Settings, first_eight_bytes};

/// Changes with every boot, and differs between hosts that share a name.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";
/// Longest name in reports, in characters.
const NAME_CHARACTERS_MAX: usize = 32;

/// Identity of the host as this process sees it. Processes of one container or host agree on it;
/// different host names on one kernel are different hosts, as they are for NCCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Stable for the life of a boot, or for ever if the user set an identity.
    pub id: u64,
    /// Short, printable, without spaces, for `h0/soft0`.
    pub name: String,
}

impl HostIdentity {
    /// From what the user said, else from boot id and host name.
    fn new(given: Option<&str>, boot_id: &str, host_name: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("r2ccl host identity 1");
        let (parts, name) = match given {
            Some(text) => (["given", text, ""], text),
            None => {
                let short = host_name.split('.').next().unwrap_or_default();
                (["found", boot_id, host_name], short)
            }
        };
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let id = first_eight_bytes(&hasher.finalize());
        let is_printable = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let clean = name.chars().map(|c| if is_printable(c) { c } else { '_' });
        let mut name: String = clean.take(NAME_CHARACTERS_MAX).collect();
        if name.is_empty() {
            name = format!("host-{:08x}", id >> 32);
        }
        Self { id, name }
    }
}

impl Settings {
    /// `R2CCL_HOST_ID`, else `NCCL_HOSTID`, else boot id and host name. Reads the system's files.
    pub fn host_identity(&self) -> HostIdentity {
        let given = self.host_id.as_deref().or(self.nccl_host_id.as_deref());
        // Without a boot id (no /proc) the host name alone must do.
        let boot_id = std::fs::read_to_string(BOOT_ID_PATH).unwrap_or_default();
        let host_name = nix::unistd::gethostname().unwrap_or_default();
        HostIdentity::new(given, boot_id.trim(), &host_name.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_wins_over_nccls_over_the_systems() {
        let both = Settings::from_pairs([("NCCL_HOSTID", "theirs"), ("R2CCL_HOST_ID", "ours")]);
        let theirs = Settings::from_pairs([("NCCL_HOSTID", "theirs")]);
        let none = Settings::from_pairs([("", ""); 0]);
        assert_eq!(
            both.host_identity(),
            HostIdentity::new(Some("ours"), "b", "h")
        );
        assert_eq!(
            theirs.host_identity(),
            HostIdentity::new(Some("theirs"), "c", "i")
        );
        assert_ne!(none.host_identity().id, both.host_identity().id);
        assert_eq!(none.host_identity(), none.host_identity());
    }

    #[test]
    fn each_source_counts() {
        let base = HostIdentity::new(None, "boot", "n1.example.org");
        assert_eq!(base.name, "n1");
        assert_ne!(
            base.id,
            HostIdentity::new(None, "boot2", "n1.example.org").id
        );
        assert_ne!(
            base.id,
            HostIdentity::new(None, "boot", "n1.example.com").id
        );
        // Shifting a character from one part to the other makes another host.
        assert_ne!(
            HostIdentity::new(None, "ab", "c").id,
            HostIdentity::new(None, "a", "bc").id
        );
        // A fixed value: processes of different builds must agree.
        assert_eq!(
            HostIdentity::new(Some("h0"), "", "").id,
            16_751_620_543_694_813_195
        );
    }

    #[test]
    fn names_are_printable_and_short() {
        let long = "x".repeat(300);
        let given = |text| HostIdentity::new(Some(text), "", "").name;
        assert_eq!(given("rack 7/é\n"), "rack_7___");
        assert_eq!(given(&long).len(), NAME_CHARACTERS_MAX);
        assert!(
            HostIdentity::new(None, "boot", "")
                .name
                .starts_with("host-")
        );
    }
}
