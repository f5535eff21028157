//! `portico plan`: what a change would do, without doing it. The API server tries it (a dry run),
//! then the tables of all nodes are made as they are and as they would be.

mod documents;
mod forwarding;
mod object;
mod outside;
mod show;
mod world;

use crate::client::{Access, Reader};
use crate::explain::Settings;
use crate::fleet::path;
use crate::output::Output;
use anyhow::{Context, bail};
use clap::Args;
use documents::Document;
use forwarding::Forwarding;
use object::{ObjectChange, What};
use outside::Outside;
use portico_model::key::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use world::{Changes, Kind, World};

/// What something would change is told by.
const CHANGES: u8 = 2;

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// The change: objects as they shall be, in YAML or JSON; - is the standard input.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The objects shall go.
    #[arg(long)]
    delete: bool,
    /// The namespace of objects that name none.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// As whom the change will be applied: what they no longer ask for goes.
    #[arg(long, value_name = "NAME", default_value = "kubectl")]
    field_manager: String,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

/// Everything that would happen.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    objects: Vec<ObjectChange>,
    #[serde(flatten)]
    forwarding: Forwarding,
    #[serde(flatten)]
    outside: Outside,
    /// How many nodes there are.
    nodes: usize,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.objects.iter().all(|object| object.what == What::Same)
            && self.forwarding == Forwarding::default()
    }
}

/// 2 where something would change, 0 where nothing would.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let documents = arguments.documents()?;
    crate::runtime()?.block_on(async {
        let reader = arguments.access.reader().await?;
        let trial = Trial {
            reader: &reader,
            arguments,
            kinds: BTreeMap::new(),
        };
        let plan = trial.plan(documents).await?;
        arguments.output.print(&plan)?;
        Ok(if plan.is_empty() { 0 } else { CHANGES })
    })
}

impl Arguments {
    fn documents(&self) -> anyhow::Result<Vec<Document>> {
        let mut all = Vec::new();
        for file in &self.files {
            let read = match file.to_str() {
                Some("-") => {
                    let mut text = String::new();
                    std::io::stdin().read_to_string(&mut text).map(|_| text)
                }
                _ => std::fs::read_to_string(file),
            };
            let text = read.with_context(|| format!("cannot read {}", file.display()))?;
            all.extend(
                documents::parse(&text)
                    .map_err(anyhow::Error::msg)
                    .with_context(|| file.display().to_string())?,
            );
        }
        Ok(all)
    }
}

/// What the API server calls a kind.
#[derive(Clone, Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

struct Trial<'a> {
    reader: &'a Reader,
    arguments: &'a Arguments,
    /// By apiVersion.
    kinds: BTreeMap<String, Vec<Resource>>,
}

impl Trial<'_> {
    async fn plan(mut self, documents: Vec<Document>) -> anyhow::Result<Plan> {
        let world = self.world().await?;
        let namespaces: Vec<String> = documents
            .iter()
            .filter(|one| one.kind == "Namespace")
            .map(|one| one.name.clone())
            .collect();
        let (mut objects, mut changes) = (Vec::new(), Changes::new());
        for mut document in documents {
            let path = self.path(&mut document).await?;
            let before: Option<Value> = self.reader.find(&path).await?;
            let (after, note) = self.after(&document, &path, &namespaces).await?;
            let change = ObjectChange::of(document.title(), before.as_ref(), after.as_ref());
            if let Some(kind) = Kind::of(&document.api_version, &document.kind)
                .filter(|_| change.what != What::Same)
            {
                let namespace = document.namespace.as_deref().unwrap_or_default();
                let key = ObjectKey::new(namespace, &document.name);
                changes.push((kind, key, after));
            }
            objects.push(ObjectChange { note, ..change });
        }
        let changes = world.consequences(changes);
        let nodes = world.of(Kind::Node).count();
        let forwarding =
            forwarding::diff(&world, &changes, |node| self.arguments.settings.of(node));
        Ok(Plan {
            objects,
            forwarding,
            outside: outside::diff(&world, &changes),
            nodes,
        })
    }

    async fn world(&self) -> anyhow::Result<World> {
        let mut world = World::default();
        for kind in Kind::ALL {
            let list: Vec<Value> = self.reader.list_if_known(kind.path()).await?;
            list.into_iter()
                .for_each(|object| world.insert(kind, object));
        }
        Ok(world)
    }

    /// Where the object is; it gets its namespace if it needs one.
    async fn path(&mut self, document: &mut Document) -> anyhow::Result<String> {
        let api = match document.api_version.contains('/') {
            true => format!("/apis/{}", document.api_version),
            false => format!("/api/{}", document.api_version),
        };
        if !self.kinds.contains_key(&document.api_version) {
            let found: Option<Resources> = self.reader.find(&api).await?;
            let found = found.map(|found| found.resources).unwrap_or_default();
            self.kinds.insert(document.api_version.clone(), found);
        }
        let known = self.kinds.get(&document.api_version).into_iter().flatten();
        let mut fitting = known.filter(|one| one.kind == document.kind && !one.name.contains('/'));
        let Some(resource) = fitting.next() else {
            bail!(
                "{}: the API server has no {} in {}",
                document.title(),
                document.kind,
                document.api_version
            );
        };
        document.namespace = match (resource.namespaced, document.namespace.take()) {
            (true, given) => given.or_else(|| Some(self.arguments.namespace.clone())),
            (false, _) => None,
        };
        Ok(format!(
            "{}/{}",
            path(&api, document.namespace.as_deref(), &resource.name),
            document.name
        ))
    }

    /// The object as it would be, and what could not be tried.
    async fn after(
        &self,
        document: &Document,
        path: &str,
        new_namespaces: &[String],
    ) -> anyhow::Result<(Option<Value>, String)> {
        if self.arguments.delete {
            return Ok((None, String::new()));
        }
        let manager = &self.arguments.field_manager;
        match self
            .reader
            .apply(path, manager, "dryRun=All", &document.value)
            .await
        {
            Ok(object) => Ok((Some(object), String::new())),
            // It comes with the namespace that the same change makes, and which is not there for
            // the trial.
            Err(_)
                if document
                    .namespace
                    .as_ref()
                    .is_some_and(|name| new_namespaces.contains(name)) =>
            {
                let mut value = document.value.clone();
                value["metadata"]["namespace"] = document.namespace.clone().into();
                Ok((
                    Some(value),
                    "not tried, since its namespace is not there yet".to_owned(),
                ))
            }
            Err(error) => Err(error.context(format!("{} would be refused", document.title()))),
        }
    }
}
