//! Straight to the servers.

use crate::lab::{Daemons, Lab, alone, close_one, go_all_the_way, run, wanted};
use portico_vip::forward::{Forwarding, Mode};

#[tokio::test(flavor = "multi_thread")]
async fn packets_reach_the_servers_directly() {
    let lab = Lab::new();
    let mut daemons = Daemons::new(&lab, |_| alone());
    let applied = daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!((applied.mode, applied.problems), (Mode::Direct, vec![]));
    go_all_the_way(&lab, &mut daemons).await;
    println!("{}", daemons.rules().join("\n"));
    assert!(
        daemons
            .rules()
            .join("\n")
            .contains("172.16.64.58:6443 to 172.16.64.31:6443, 172.16.64.32:6443")
    );
    close_one(&lab, &mut daemons).await;
    daemons.remove();
    assert_eq!(run(lab.owner(), "nft list tables"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_removed_comes_back_and_what_is_right_stays() {
    let lab = Lab::new();
    let mut daemons = Daemons::new(&lab, |_| alone());
    daemons.apply(&wanted(&[1, 2]));
    let rules = || run(lab.owner(), "nft -s -n list ruleset");
    let before = rules();
    let generation = || run(lab.owner(), "nft -s -a list ruleset");
    let untouched = generation();
    daemons.apply(&wanted(&[1, 2]));
    assert_eq!(generation(), untouched);
    run(lab.owner(), "nft flush ruleset");
    daemons.apply(&wanted(&[1, 2]));
    assert_eq!(rules(), before);
    run(lab.owner(), "nft flush chain ip portico-vip services");
    daemons.apply(&wanted(&[2]));
    lab.check(&[2], "repaired while it changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_process_left_is_adopted_or_removed() {
    let lab = Lab::new();
    let owner = lab.owner();
    Daemons::new(&lab, |_| alone()).apply(&wanted(&[1, 2]));
    let left = run(owner, "nft -s -a list ruleset");
    let mut next = Daemons::new(&lab, |_| alone());
    next.apply(&wanted(&[1, 2]));
    assert_eq!(
        run(owner, "nft -s -a list ruleset"),
        left,
        "nothing was written anew"
    );
    drop(next);
    owner.enter(|| Forwarding::new(alone()).remove()).unwrap();
    assert_eq!(run(owner, "nft list tables"), "");
}
