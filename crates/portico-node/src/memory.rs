//! How the process stands with the kernel's memory: who is killed first, which pages it uses, what
//! of its code is mapped.

use std::io;
use std::ops::Range;

/// The daemon forwards everybody's traffic: the kernel should rather kill something else.
pub fn prefer_others_to_be_killed(adjustment: i32) {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", adjustment.to_string()) {
        tracing::info!(%error, adjustment, "cannot set oom_score_adj");
    }
}

/// A heap of many small objects that come and go in bursts wastes most of a large page.
#[expect(unsafe_code, reason = "prctl is only there as a system call")]
pub fn use_small_pages() {
    // SAFETY: takes integers, touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "cannot do without large pages");
    }
}

/// The code that lists, compares and installs everything is not needed again for long. What is, is
/// mapped again at its first use, from the kernel's cache of the file.
pub fn forget_code() {
    let (Ok(maps), Ok(program)) = (
        std::fs::read_to_string("/proc/self/maps"),
        std::env::current_exe(),
    ) else {
        return;
    };
    for range in code(&maps, &program.to_string_lossy()) {
        if let Err(error) = forget(&range) {
            tracing::debug!(%error, "cannot give back the memory of code");
        }
    }
}

#[expect(unsafe_code, reason = "madvise is only there as a system call")]
fn forget(range: &Range<usize>) -> io::Result<()> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the range is code of this very program, mapped from its file and never written, so
    // that the kernel reads the same bytes again from the file when they are needed.
    match unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where a program's code is: mappings of its file that can be executed and not written. Others may
/// have been written to while the program was loaded.
fn code(maps: &str, program: &str) -> Vec<Range<usize>> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let path = words.nth(3)?;
        let (start, end) = range.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        (rights == "r-xp" && path == program).then_some(range)
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_itself_is_forgotten() {
        let maps = "\
5580f000-55810000 r--p 00000000 fe:00 12 /usr/bin/portico
55810000-5581f000 r-xp 00001000 fe:00 12 /usr/bin/portico
5581f000-55820000 rw-p 0000f000 fe:00 12 /usr/bin/portico
7f000000-7f001000 rw-p 00000000 00:00 0
7f001000-7f002000 r-xp 00000000 fe:00 13 /lib/libc.so.6
7ffe0000-7ffe1000 r-xp 00000000 00:00 0 [vdso]
";
        let found: Vec<(usize, usize)> = code(maps, "/usr/bin/portico")
            .iter()
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(found, [(0x5581_0000, 0x5581_f000)]);
    }

    #[test]
    fn a_program_goes_on_without_its_code() {
        forget_code();
    }
}
