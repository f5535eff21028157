use super::*;
use crate::objects::Kind;
use tokio::time::timeout;

const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: NAME}, spec: {externalIPs: [192.0.2.1], \
                       ports: [{port: 80}]}}";

fn service(name: &str) -> String {
    SERVICE.replace("NAME", name)
}

fn write(folder: &Path, file: &str, text: &str) {
    let new = folder.join(".new");
    fs::write(&new, text).unwrap();
    fs::rename(new, folder.join(file)).unwrap();
}

fn brief(changes: &[Change]) -> Vec<(String, bool, Vec<String>, Vec<String>)> {
    let name = |name: Name| {
        assert_eq!(name.kind, Kind::Service);
        name.name
    };
    let brief = |change: &Change| {
        let objects = change
            .objects
            .iter()
            .map(|object| name(object.name()))
            .collect();
        (
            change.file.clone(),
            change.version.is_some(),
            objects,
            change.gone.iter().cloned().map(name).collect(),
        )
    };
    changes.iter().map(brief).collect()
}

#[test]
fn only_what_changed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut known) = (folder.path(), Folder::default());
    let text = |name: &str| name.to_owned();
    assert_eq!(known.look(path), []);
    write(path, "a.yaml", &service("one"));
    write(path, "b.yaml", &service("two"));
    write(path, "notes.txt", "nothing of ours");
    write(path, ".hidden.yaml", &service("hidden"));
    let first = [
        (text("a.yaml"), true, vec![text("one")], vec![]),
        (text("b.yaml"), true, vec![text("two")], vec![]),
    ];
    assert_eq!(brief(&known.look(path)), first);
    assert_eq!(known.look(path), []);
    write(path, "a.yaml", &service("three"));
    assert_eq!(
        brief(&known.look(path)),
        [(text("a.yaml"), true, vec![text("three")], vec![text("one")])]
    );
    fs::remove_file(path.join("b.yaml")).unwrap();
    assert_eq!(
        brief(&known.look(path)),
        [(text("b.yaml"), false, vec![], vec![text("two")])]
    );
}

#[test]
fn a_bad_file_stays_what_it_was_and_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut known) = (folder.path(), Folder::default());
    write(path, "a.yaml", &service("one"));
    known.look(path);
    write(path, "a.yaml", "kind: Service");
    write(path, "b.yaml", &service("two"));
    let changes = known.look(path);
    assert_eq!(
        changes
            .iter()
            .map(|change| change.file.as_str())
            .collect::<Vec<_>>(),
        ["b.yaml"]
    );
    assert_eq!(known.look(path), [], "complained about once");
    write(path, "a.yaml", &service("one"));
    assert_eq!(known.look(path).len(), 1, "good again");
    write(path, "a.yaml", "kind: Service");
    known.look(path);
    fs::remove_file(path.join("a.yaml")).unwrap();
    assert_eq!(known.look(path)[0].gone.len(), 1, "it had one");
}

/// Changes are noticed at once, what is in force is told, and of two processes only one serves a
/// folder.
#[tokio::test]
async fn a_folder_is_served_by_one() {
    const SOON: Duration = Duration::from_secs(10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("down");
    let (inputs, mut received) = mpsc::channel(16);
    let (in_force, told) = flag::channel(InForce::new());
    let serving = tokio::spawn(serve(
        path.clone(),
        "nftables",
        inputs.clone(),
        told,
        AlignedTimer::by_chance(),
    ));
    let installed = async || loop {
        let note = fs::read(path.join(INSTALLED))
            .ok()
            .and_then(|text| serde_json::from_slice::<Installed>(&text).ok());
        match note {
            Some(note) => return note,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    assert_eq!(timeout(SOON, installed()).await.unwrap().mode, "nftables");
    let mut next = async || match timeout(SOON, received.recv()).await.unwrap().unwrap() {
        Input::Static(change) => change,
        other => panic!("{other:?}"),
    };
    write(&path, "a.yaml", &service("one"));
    let change = next().await;
    assert_eq!(change.version, Some(version(service("one").as_bytes())));
    let files = InForce::from([(change.file, change.version.unwrap())]);
    in_force.send_replace(files.clone());
    timeout(SOON, async {
        while installed().await.files != files {
            tokio::time::sleep(Duration::from_millis(1)).await
        }
    })
    .await
    .unwrap();

    let error = Place::take(&path).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("another process serves this folder")
    );
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    assert_eq!(
        next().await.version,
        None,
        "a folder that was taken away is empty"
    );
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    assert!(Place::take(&path).is_ok(), "the next one may");
}
