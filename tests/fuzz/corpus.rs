//! The fuzz targets of `fuzz/`, with the stable compiler: each runs over its corpus and over simple
//! mutations of it.

use crate::body::damaged;
use crate::common::random::Random;
use crate::parsers::{TARGETS, Target};
use std::fs;
use std::path::{Path, PathBuf};

/// Longer seeds are cut and changed only here and there.
const MOST_PLACES: usize = 256;
/// Damages of each seed beside the systematic ones.
const DAMAGES: usize = 500;

#[test]
fn every_parser_lives_through_its_corpus_and_mutations_of_it() {
    let mut random = Random::seeded(crate::variable("PORTICO_FUZZ_SEED").unwrap_or(1));
    for target in TARGETS {
        let seeds = seeds(target.0);
        assert!(seeds.len() >= 3, "{}: {} seeds", target.0, seeds.len());
        let tried: usize = seeds
            .iter()
            .map(|(path, seed)| try_all(target, path, seed, &mut random))
            .sum();
        println!("{}: {} seeds, {tried} inputs", target.0, seeds.len());
    }
}

#[test]
fn every_target_has_a_file_and_every_file_is_a_target() {
    let mut files = names(&folder().join("fuzz_targets"));
    files.sort();
    let targets: Vec<String> = TARGETS
        .iter()
        .map(|(name, _)| format!("{name}.rs"))
        .collect();
    assert_eq!(files, targets);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for file in files {
        let line = format!("path = \"fuzz_targets/{file}\"");
        assert!(manifest.contains(&line), "fuzz/Cargo.toml has no {line}");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder().join("corpus").join(target);
    let mut names = names(&folder);
    names.sort();
    names
        .into_iter()
        .map(|name| (folder.join(&name), fs::read(folder.join(name)).unwrap()))
        .collect()
}

/// The seed, which the parser takes, and what comes of it by cutting it anywhere, by changing any
/// byte to what is most often special, and by a few changes at once. How many inputs that were.
fn try_all((name, parse): Target, path: &Path, seed: &[u8], random: &mut Random) -> usize {
    assert!(
        parse(seed) > 0,
        "{name} does not take its seed {}",
        path.display()
    );
    let step = seed.len().div_ceil(MOST_PLACES).max(1);
    let mut tried = 1;
    for at in (0..seed.len()).step_by(step) {
        parse(&seed[..at]);
        let mut bytes = seed.to_vec();
        for byte in [
            0,
            1,
            0x7f,
            0x80,
            0xff,
            seed[at] ^ 1,
            seed[at].wrapping_add(1),
        ] {
            bytes[at] = byte;
            parse(&bytes);
        }
        tried += 8;
    }
    for _ in 0..DAMAGES {
        parse(&damaged(random, seed.to_vec()));
    }
    tried + DAMAGES
}
