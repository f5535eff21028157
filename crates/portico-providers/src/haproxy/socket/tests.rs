use super::super::plan::What;
use super::*;

fn delete(server: usize) -> Command {
    Command {
        section: "portico_a_b_80_aa".to_owned(),
        server: server.to_string(),
        what: What::Delete,
    }
}

#[test]
fn answers_are_told_apart() {
    let text = "New server registered.\n\nVariable not found\n\n\nVariable not \
                found\n\nTwo\nlines.\nVariable not found\n\n";
    assert_eq!(
        split(text, 3),
        ["New server registered.", "", "Two\nlines."]
    );
    assert_eq!(split(text, 4)[3], "no answer");
    assert_eq!(split("", 1), ["no answer"]);
    assert_eq!(split("cut of", 1), ["no answer"]);
}

#[test]
fn lines_are_not_longer_than_haproxy_reads() {
    let commands: Vec<Command> = (0..2000).map(delete).collect();
    let lines = lines(42, &commands);
    assert!(
        lines.len() > 5 && lines.iter().all(|(line, _)| line.len() < 2 * LINE),
        "{}",
        lines.len()
    );
    assert_eq!(
        lines.iter().map(|(_, some)| some.len()).sum::<usize>(),
        2000
    );
    assert!(lines[0].0.starts_with(
        "@!42 del server portico_a_b_80_aa/0;@!42 show env PORTICO_END;@!42 del server"
    ));
    assert!(super::lines(42, &[]).is_empty());
}
