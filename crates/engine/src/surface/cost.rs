//! The cost of applying a schema, with its references expanded.
//!
//! Thirty definitions that each refer twice to the next are a few hundred bytes of JSON and a billion schemas to
//! apply. The cost is the number of schemas that one value may be checked against. A definition that refers to
//! itself through a property is a tree, and costs no more than the value is large. One that returns to itself
//! twice for the same property, or for the same value, is unbounded.

use std::collections::HashMap;

use serde_json::Value;

/// How many recursive returns of one definition are followed.
const MAX_RETURNS: usize = 256;

/// The cost of a schema; `None` if it is unbounded or above `limit`.
pub(super) fn cost(schema: &Value, limit: u64) -> Option<u64> {
    let mut counter = Counter { limit, known: HashMap::new(), open: vec![] };
    let found = counter.value(schema, schema)?;
    (found.cost <= limit).then_some(found.cost)
}

/// The identity of a schema within the document: its address in memory, which is stable while it is counted.
type Identity = usize;

#[derive(Clone, Default)]
struct CountedSchema {
    cost: u64,
    /// Definitions in progress that this schema returns to, each with the properties on the way.
    returns: Vec<(Identity, String)>,
}

struct Counter {
    limit: u64,
    known: HashMap<Identity, CountedSchema>,
    open: Vec<Identity>,
}

impl Counter {
    fn value(&mut self, value: &Value, base: &Value) -> Option<CountedSchema> {
        match value {
            Value::Object(members) => {
                // References inside an embedded schema with its own `$id` resolve against it.
                let base = if members.get("$id").is_some_and(Value::is_string) { value } else { base };
                let mut sum = CountedSchema { cost: 1, returns: vec![] };
                for (name, member) in members {
                    // Definitions cost where they are referred to; the others hold values, not schemas.
                    if matches!(
                        name.as_str(),
                        "$defs" | "definitions" | "enum" | "const" | "default" | "examples"
                    ) {
                        continue;
                    }
                    let counted = match (name.as_str(), member.as_str()) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target)) => {
                            match resolve(base, target) {
                                Some(target) => self.definition(target, base)?,
                                None => CountedSchema::default(),
                            }
                        }
                        ("properties" | "patternProperties", _) => self.properties(member, base)?,
                        (
                            "items" | "prefixItems" | "additionalItems" | "contains" | "unevaluatedItems",
                            _,
                        ) => beneath("[]", self.value(member, base)?),
                        ("additionalProperties" | "unevaluatedProperties" | "propertyNames", _) => {
                            beneath("{}", self.value(member, base)?)
                        }
                        _ => self.value(member, base)?,
                    };
                    self.add(&mut sum, counted)?;
                }
                Some(sum)
            }
            Value::Array(items) => {
                let mut sum = CountedSchema::default();
                for item in items {
                    let counted = self.value(item, base)?;
                    self.add(&mut sum, counted)?;
                }
                Some(sum)
            }
            _ => Some(CountedSchema::default()),
        }
    }

    fn properties(&mut self, properties: &Value, base: &Value) -> Option<CountedSchema> {
        let mut sum = CountedSchema::default();
        for (name, property) in properties.as_object().into_iter().flatten() {
            let counted = beneath(name, self.value(property, base)?);
            self.add(&mut sum, counted)?;
        }
        Some(sum)
    }

    /// Counts the schema that a reference leads to.
    fn definition(&mut self, target: &Value, base: &Value) -> Option<CountedSchema> {
        let identity = std::ptr::from_ref(target) as usize;
        if let Some(known) = self.known.get(&identity) {
            return Some(known.clone());
        }
        if self.open.contains(&identity) {
            return Some(CountedSchema { cost: 1, returns: vec![(identity, String::new())] });
        }
        self.open.push(identity);
        let counted = self.value(target, base);
        self.open.pop();
        let mut counted = counted?;
        let (mut own, other): (Vec<_>, Vec<_>) =
            counted.returns.drain(..).partition(|(returns_to, _)| *returns_to == identity);
        own.sort();
        let twice = own.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || own.iter().any(|(_, way)| way.is_empty()) {
            return None;
        }
        counted.returns = other;
        if counted.returns.is_empty() {
            self.known.insert(identity, counted.clone());
        }
        Some(counted)
    }

    fn add(&self, sum: &mut CountedSchema, more: CountedSchema) -> Option<()> {
        sum.cost = sum.cost.saturating_add(more.cost);
        sum.returns.extend(more.returns);
        (sum.cost <= self.limit && sum.returns.len() <= MAX_RETURNS).then_some(())
    }
}

/// The same count for a part of the value: prefixes the paths of its returns.
fn beneath(name: &str, mut counted: CountedSchema) -> CountedSchema {
    for (_, way) in &mut counted.returns {
        *way = format!("/{name}{way}");
    }
    counted
}

/// The schema that a reference within the document leads to.
fn resolve<'a>(base: &'a Value, target: &str) -> Option<&'a Value> {
    let fragment = target.strip_prefix('#')?;
    if fragment.is_empty() || fragment.starts_with('/') {
        return base.pointer(&crate::redact::decoded(fragment));
    }
    anchored(base, fragment)
}

fn anchored<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => {
            let is_it = |key: &str| members.get(key).and_then(Value::as_str) == Some(name);
            if is_it("$anchor") || is_it("$dynamicAnchor") {
                return Some(value);
            }
            members.values().find_map(|member| anchored(member, name))
        }
        Value::Array(items) => items.iter().find_map(|item| anchored(item, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_multiplied_out() {
        let mut schema = json!({ "$defs": { "d30": { "type": "string" } }, "$ref": "#/$defs/d0" });
        for n in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            schema["$defs"][format!("d{n}")] = json!({ "allOf": [next, next] });
        }
        assert!(schema.to_string().len() < 3000);
        assert_eq!(cost(&schema, 100_000), None);
        assert!(cost(&json!({ "type": "object", "properties": { "a": {}, "b": {} } }), 100) == Some(3));
    }

    #[test]
    fn a_tree_has_a_bound_and_what_returns_twice_to_one_place_has_none() {
        let node = |node: Value| json!({ "$defs": { "node": node }, "$ref": "#/$defs/node" });
        let again = json!({ "$ref": "#/$defs/node" });
        let tree =
            node(json!({ "properties": { "left": again, "right": again, "all": { "items": again } } }));
        assert!(cost(&tree, 1000).is_some());
        let twice =
            node(json!({ "allOf": [{ "properties": { "c": again } }, { "properties": { "c": again } }] }));
        assert_eq!(cost(&twice, u64::MAX), None);
        assert_eq!(cost(&node(json!({ "anyOf": [again, {}] })), u64::MAX), None);
        // Through an anchor, and through the root itself.
        assert_eq!(cost(&json!({ "$anchor": "me", "not": { "$ref": "#me" } }), u64::MAX), None);
        assert!(cost(&json!({ "properties": { "next": { "$ref": "#" } } }), 1000).is_some());
    }
}
