//! Attributes of balancers and target groups. To read them takes a call for each, so a tag says
//! what they are; it says that they are being changed from before the first until after the last
//! call that changes them. Pure.

use std::collections::BTreeMap;

use super::api::ec2::Tags;

const TAG: &str = "portico.dev/settings";
const CHANGING: &str = "changing";

/// What is to be done: say so, do it (all attributes, with those that are not wanted as the vendor
/// has them), say so.
pub(super) struct Change {
    pub before: Option<Tags>,
    pub attributes: BTreeMap<String, String>,
    pub after: Tags,
}

/// `tags` of what is there.
pub(super) fn change(
    tags: &Tags,
    wanted: &BTreeMap<String, String>,
    defaults: &[(&str, &str)],
) -> Option<Change> {
    let (now, text) = (tags.get(TAG).map_or("", String::as_str), text(wanted));
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut attributes: BTreeMap<String, String> = defaults.iter().map(own).collect();
    attributes.extend(wanted.clone());
    let before = (now != CHANGING).then(|| tag(CHANGING));
    (now != text).then(|| Change {
        before,
        attributes,
        after: tag(&text),
    })
}

/// The tags of something that is created and gets its attributes after that.
pub(super) fn tags_at_first(mut tags: Tags, wanted: &BTreeMap<String, String>) -> Tags {
    if !wanted.is_empty() {
        tags.extend(tag(CHANGING));
    }
    tags
}

fn tag(value: &str) -> Tags {
    BTreeMap::from([(TAG.to_owned(), value.to_owned())])
}

fn text(settings: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(" ")
}
