use super::*;

/// As HAProxy 2.6 prints it.
const STATES: &str = "1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port
2 theirs 1 127.0.0.1 127.0.0.1 2 0 1 1 1 15 3 4 6 0 0 0 - 18999 - 0 18999 - - 18999
3 portico_a_b_80_aa 1 10.0.0.1_81 10.0.0.1 2 0 1 1 25 8 2 0 6 0 0 0 - 81 - 0 0 - - 0
3 portico_a_b_80_aa 2 10.0.0.2_81 10.0.0.2 0 0 1 1 1 1 0 0 0 0 0 0 - 81 - 0 0 - - 0
3 portico_a_b_80_aa 3 fd00::1_81 fd00::1 2 1 1 1 2 15 3 1 6 0 0 0 - 81 - 0 18999 - - 18999

";

#[test]
fn what_runs_is_read() {
    let names = "# \
             name\ntheirs\nportico_generation_00000000000000ff\nportico_a_b_80_aa\nportico_empty_c_80_bb\n\n";
    let running = Running::parse(7, names, STATES);
    assert_eq!((running.worker, running.generation), (7, Some(255)));
    assert_eq!(
        running.sections.keys().collect::<Vec<_>>(),
        ["portico_a_b_80_aa", "portico_empty_c_80_bb"]
    );
    let server = |name: &str| running.sections["portico_a_b_80_aa"][name];
    assert_eq!(
        server("10.0.0.1_81"),
        Server {
            address: "10.0.0.1:81".parse().unwrap(),
            enabled: true,
            up: true
        }
    );
    assert!(!server("10.0.0.2_81").up && !server("fd00::1_81").enabled);
    assert_eq!(
        Running::parse(7, "", "Unknown command\n"),
        Running {
            worker: 7,
            ..Running::default()
        }
    );
}

#[test]
fn the_next_worker_learns_health_and_not_who_was_on_the_way_out() {
    let kept = worth_keeping(STATES);
    assert!(kept.starts_with("1\n# be_id"), "{kept}");
    assert!(
        kept.contains(" theirs ") && kept.contains(" 10.0.0.2_81 ") && !kept.contains("fd00"),
        "{kept}"
    );
    assert!(kept.ends_with(" - - 0\n"), "{kept:?}");
}

#[test]
fn processes_are_read() {
    let text = "#<PID>          <type>          <reloads>       <uptime>        <version>      
31220           master          4 [failed: 0]   0d00h00m47s     2.6.12-1+deb12u4
# workers
724             worker          0               0d00h00m00s     2.6.12-1+deb12u4
# old workers
700             worker          1               0d00h00m00s     2.6.12-1+deb12u4
# programs

";
    assert_eq!(parse_processes(text), Some((724, 4)));
    assert_eq!(
        parse_processes(&text.replace("724             worker", "")),
        None
    );
    assert_eq!(parse_processes("nonsense"), None);
}
