//! Finding and opening the plugin file as NCCL does.

use std::ffi::c_void;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::table::Table;
use super::{LoadError, Net};

/// Oldest and newest table version that NCCL 2.20 to 2.30 look for and that we drive.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=12;

/// Opens the plugin with NCCL's flags and takes the newest table it exports, or exactly the one of
/// version `abi`. The library stays loaded until the process ends.
pub fn load(path: &Path, abi: Option<u32>) -> Result<Net, LoadError> {
    // SAFETY: loading runs the initialisers of a file that the user named for this very purpose.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LoadError::Open(path.to_path_buf(), reason(&error)))?;
    let found: Vec<(u32, *const c_void)> = VERSIONS
        .rev()
        .filter_map(|v| symbol(&library, v).map(|address| (v, address)))
        .collect();
    std::mem::forget(library);
    let chosen = match abi {
        None => found.first(),
        Some(wanted) => found.iter().find(|(version, _)| *version == wanted),
    };
    let Some(&(version, address)) = chosen else {
        return Err(match abi {
            Some(wanted) if !found.is_empty() => {
                let versions = found.iter().map(|(version, _)| *version).collect();
                LoadError::NoVersion(path.to_path_buf(), wanted, versions)
            }
            _ => LoadError::NoTable(path.to_path_buf()),
        });
    };
    // SAFETY: the symbol's name says which table lies at its address, and the library, hence the
    // table, is never unloaded.
    let table = unsafe { Table::at(version, address) };
    match table.missing_slot() {
        Some(slot) => Err(LoadError::MissingSlot(path.to_path_buf(), slot)),
        None => Ok(Net::new(table)),
    }
}

/// Address of the table of one version, if the library exports it.
fn symbol(library: &Library, version: u32) -> Option<*const c_void> {
    let name = format!("ncclNetPlugin_v{version}\0");
    // SAFETY: the address of a data symbol, used as nothing else.
    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) }.ok()?;
    let address = symbol.into_raw() as *const c_void;
    (!address.is_null()).then_some(address)
}

/// The dynamic loader's own words.
fn reason(error: &libloading::Error) -> String {
    use std::error::Error;
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
