//! Lists in a strategic merge patch: merging by key or by value, and the order of the result.
//!
//! The order: items that the patch names stand in the order of the patch (or of
//! `$setElementOrder`), all others in the order they had. Where the two meet, an item that only the
//! object has goes before the first patch item that followed it in the object; patch items that are
//! new come as early as that allows.

use super::*;
use std::collections::HashMap;
use std::mem::discriminant;

impl<'s> Merge<'s> {
    /// Merge two lists, or replace one by the other where the schema says no more.
    pub(super) fn lists(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        field: &'s Field,
        deletes: bool,
    ) -> Result<Vec<Value>> {
        let Type::List(item) = &field.ty else {
            return Err(bad(format!(
                "expected slice or array type for the json field {:?}",
                field.name
            )));
        };
        if field.patch.is_none() && !deletes {
            return Ok(patch);
        }
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        if !of_maps(&[&original, &patch])? {
            return Ok(if deletes {
                delete_values(original, &patch)
            } else {
                merge_values(original, patch)
            });
        }
        let key = field
            .patch
            .as_ref()
            .and_then(|strategy| strategy.key.as_deref());
        let key = key.ok_or_else(|| bad("cannot merge lists without merge key"))?;
        self.keyed(original, patch, key, self.struct_of(item))
    }

    fn keyed(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        key: &str,
        of: Option<&'s TypeDef>,
    ) -> Result<Vec<Value>> {
        let (special, mut patch): (Vec<_>, Vec<_>) = patch
            .into_iter()
            .partition(|item| item.get(DIRECTIVE).is_some());
        if run_directives(&mut original, &special, key)? {
            original = std::mem::take(&mut patch);
        }
        let patch_order = keys(&patch, Some(key))?;
        let server_order = keys(&original, Some(key))?;
        let merged = self.merge_items(original, patch, key, of)?;
        in_order(merged, &patch_order, &server_order, Some(key))
    }

    /// Merge each item of the patch into the item with the same key, or append it.
    fn merge_items(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        key: &str,
        of: Option<&'s TypeDef>,
    ) -> Result<Vec<Value>> {
        let mut places = HashMap::new();
        for (place, item) in original.iter().enumerate() {
            places
                .entry(key_of(item, Some(key))?.clone())
                .or_insert(place);
        }
        for item in patch {
            let value = key_of(&item, Some(key))?.clone();
            let place = *places.entry(value).or_insert(original.len());
            match (original.get_mut(place), item) {
                (Some(Value::Object(present)), Value::Object(item)) => {
                    self.maps(present, item, of)?
                }
                (_, item) => original.push(item),
            }
        }
        Ok(original)
    }

    /// Lists that the patch orders with `$setElementOrder/name`. They are done here and taken out
    /// of the patch.
    pub(super) fn ordered_lists(
        &self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        of: Option<&'s TypeDef>,
    ) -> Result<()> {
        let directives: Vec<String> = patch
            .keys()
            .filter(|key| key.starts_with(ELEMENT_ORDER))
            .cloned()
            .collect();
        for directive in directives {
            let name = directive
                .strip_prefix("$setElementOrder/")
                .ok_or_else(bad_element_order)?;
            let Some(Value::Array(order)) = patch.remove(&directive) else {
                return Err(bad_element_order());
            };
            let (present, wanted) = (list(original.remove(name))?, list(patch.remove(name))?);
            if present.is_none() && wanted.is_none() {
                continue;
            }
            let list = self.ordered(present, wanted, &order, self.field(of, name)?)?;
            original.insert(name.to_owned(), Value::Array(list));
        }
        Ok(())
    }

    fn ordered(
        &self,
        present: Option<Vec<Value>>,
        wanted: Option<Vec<Value>>,
        order: &[Value],
        field: &'s Field,
    ) -> Result<Vec<Value>> {
        let key = field
            .patch
            .as_ref()
            .and_then(|strategy| strategy.key.as_deref());
        check_order(wanted.as_deref().unwrap_or_default(), order, key)?;
        let server_order = keys(present.as_deref().unwrap_or_default(), key)?;
        let merged = match (present, wanted) {
            (Some(present), Some(wanted)) => self.lists(present, wanted, field, false)?,
            (None, Some(wanted)) => wanted.into_iter().filter_map(without_directives).collect(),
            (present, None) => present.unwrap_or_default(),
        };
        in_order(merged, &keys(order, key)?, &server_order, key)
    }
}

fn list(value: Option<Value>) -> Result<Option<Vec<Value>>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(bad("expected a list beside $setElementOrder")),
    }
}

/// Whether the items are maps. They must all be of one kind, and none may be a list.
fn of_maps(lists: &[&[Value]]) -> Result<bool> {
    let mut items = lists.iter().copied().flatten();
    let Some(first) = items.next() else {
        return Err(bad("no elements in any of the given slices"));
    };
    if first.is_array() {
        return Err(does_not_apply());
    }
    if first.is_null()
        || items.any(|item| {
            discriminant(item) != discriminant(first) || item.is_f64() != first.is_f64()
        })
    {
        return Err(bad("list element types are not identical"));
    }
    Ok(first.is_object())
}

/// What an item is known by: its merge key, or itself.
fn key_of<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value> {
    let Some(key) = key else { return Ok(item) };
    let map = item.as_object().ok_or_else(|| {
        bad(format!(
            "expected a map with the merge key {key}, but received {item}"
        ))
    })?;
    map.get(key).ok_or_else(|| {
        bad(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))
    })
}

/// Where each key stands first.
fn keys(items: &[Value], key: Option<&str>) -> Result<HashMap<Value, usize>> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        places.entry(key_of(item, key)?.clone()).or_insert(place);
    }
    Ok(places)
}

/// Carry out the items that are directives. True if the list is to be replaced.
fn run_directives(original: &mut Vec<Value>, special: &[Value], key: &str) -> Result<bool> {
    let mut gone = HashSet::new();
    let mut replace = false;
    for item in special {
        let directive = item.get(DIRECTIVE).unwrap_or(&Value::Null);
        match directive.as_str() {
            Some("delete") => {
                gone.insert(key_of(item, Some(key))?);
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(bad("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive)),
        }
    }
    original.retain(|item| item.get(key).is_none_or(|value| !gone.contains(value)));
    Ok(replace)
}

fn delete_values(mut original: Vec<Value>, gone: &[Value]) -> Vec<Value> {
    let gone: HashSet<&Value> = gone.iter().collect();
    original.retain(|item| !gone.contains(item));
    original
}

fn merge_values(original: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let place = |items: &[Value]| -> HashMap<Value, usize> {
        items
            .iter()
            .enumerate()
            .rev()
            .map(|(place, item)| (item.clone(), place))
            .collect()
    };
    let (patch_order, server_order) = (place(&patch), place(&original));
    let mut seen = HashSet::new();
    let merged = original
        .into_iter()
        .chain(patch)
        .filter(|item| seen.insert(item.clone()))
        .collect();
    interleave(merged, &patch_order, &server_order, |item| Some(item))
}

fn in_order(
    merged: Vec<Value>,
    patch_order: &HashMap<Value, usize>,
    server_order: &HashMap<Value, usize>,
    key: Option<&str>,
) -> Result<Vec<Value>> {
    for item in &merged {
        key_of(item, key)?;
    }
    Ok(interleave(merged, patch_order, server_order, |item| {
        key_of(item, key).ok()
    }))
}

/// Split the merged items into those of the patch and those of the object alone, sort both, and
/// join them.
fn interleave(
    merged: Vec<Value>,
    patch_order: &HashMap<Value, usize>,
    server_order: &HashMap<Value, usize>,
    key_of: impl Fn(&Value) -> Option<&Value>,
) -> Vec<Value> {
    let place = |order: &HashMap<Value, usize>, item: &Value| {
        key_of(item).and_then(|key| order.get(key)).copied()
    };
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .partition(|item| place(patch_order, item).is_some());
    ours.sort_by_key(|item| place(patch_order, item));
    theirs.sort_by_key(|item| place(server_order, item));

    let mut joined = Vec::with_capacity(ours.len() + theirs.len());
    let mut theirs = theirs.into_iter().peekable();
    for item in ours {
        let here = place(server_order, &item);
        while let Some(other) = theirs.next_if(|other| {
            here.zip(place(server_order, other))
                .is_some_and(|(here, other)| other < here)
        }) {
            joined.push(other);
        }
        joined.push(item);
    }
    joined.extend(theirs);
    joined
}

/// The patch's items must stand in the order list, in that order. Deletions may stand anywhere.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    let mut order = order.iter();
    for item in patch {
        if key.is_some() && item.get(DIRECTIVE).is_some() {
            continue;
        }
        let wanted = key_of(item, key)?;
        let mut found = false;
        for candidate in order.by_ref() {
            if key_of(candidate, key)? == wanted {
                found = true;
                break;
            }
        }
        if !found {
            return Err(bad(
                "The order in patch list doesn't match $setElementOrder list",
            ));
        }
    }
    Ok(())
}
