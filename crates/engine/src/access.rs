//! Callers and their grants.
//!
//! Every engine operation takes a `Caller`, so that no protocol can forget the check. A resource that a
//! caller may not see is reported exactly like one that does not exist. A caller belongs to a tenant. Tasks
//! belong to callers; shared data (memory, workflows, batches) belongs to tenants. Grants define what a
//! caller may do in its tenant.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Serialize};

/// The tenant of callers whose name has no tenant part.
pub const HOME_TENANT: &str = "home";
/// The name of tasks in grants.
pub const TASKS: &str = "tasks";
/// The operator's caller name.
const LOCAL: &str = "local";
/// The protocol of a call within this process.
const IN_PROCESS: &str = "engine";
/// The maximum length of a scope, in bytes.
const MAX_SCOPE: usize = 256;
/// The maximum number of grants of one caller.
const MAX_GRANTS: usize = 64;

/// The verified principal behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    owner: Arc<str>,
    grants: Grants,
    from: Option<Arc<str>>,
    credential: Option<Arc<str>>,
    acting: Option<ActingAgent>,
    /// The only agent whose tasks it reaches; `None`: those of all agents.
    only_agent: Option<Arc<str>>,
    /// The protocol of the request.
    dialect: &'static str,
}

/// The agent through which a caller acts, and the context of its task.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ActingAgent {
    agent: Arc<str>,
    context: Arc<str>,
}

impl ActingAgent {
    /// Whether this agent, in this context, may access a namespace. `agent:NAME/…` belongs to the agent of
    /// that name, `context:ID/…` to tasks of that context; all others belong to the tenant.
    fn may_touch(&self, namespace: &str) -> bool {
        let owned_by = |kind: &str| {
            let rest = namespace.strip_prefix(kind)?;
            Some(rest.split('/').next().unwrap_or_default())
        };
        match (owned_by("agent:"), owned_by("context:")) {
            (Some(agent), _) => agent == &*self.agent,
            (_, Some(context)) => context == &*self.context,
            _ => true,
        }
    }
}

impl Caller {
    /// The operator: this process itself, or a request that presents the secret of the data folder. May do
    /// everything.
    pub fn local() -> Self {
        Self::named(LOCAL)
    }

    /// A request without credentials to a server that requires none. It acts in the operator's name but has
    /// no admin rights: a proxy or another user of the same machine reaches the server just as the operator
    /// does.
    pub fn unverified() -> Self {
        Self::local().limited_to(Grants::unverified())
    }

    /// The caller of that name, `name` or `tenant/name`, with all grants. The calling code has verified the
    /// name.
    pub fn named(owner: impl Into<Arc<str>>) -> Self {
        Self {
            owner: owner.into(),
            grants: Grants::all(),
            from: None,
            credential: None,
            acting: None,
            only_agent: None,
            dialect: IN_PROCESS,
        }
    }

    /// Restricts the caller to these grants.
    #[must_use]
    pub fn limited_to(mut self, grants: Grants) -> Self {
        self.grants = grants;
        self
    }

    /// Sets the network address that the request came from.
    #[must_use]
    pub fn from_address(mut self, from: impl Into<Arc<str>>) -> Self {
        self.from = Some(from.into());
        self
    }

    /// Sets the id of the token that the caller presented.
    #[must_use]
    pub fn with_credential(mut self, id: impl Into<Arc<str>>) -> Self {
        self.credential = Some(id.into());
        self
    }

    /// Sets the protocol of the request and its version, such as `a2a/1.0`. The engine knows none: the label is stored with
    /// the messages, answers and cancel requests of this caller, for people.
    #[must_use]
    pub fn over(mut self, dialect: &'static str) -> Self {
        self.dialect = dialect;
        self
    }

    /// The protocol of the request; `engine` for a call within the process.
    pub fn dialect(&self) -> &'static str {
        self.dialect
    }

    /// The same caller, acting through a task of that agent in that context.
    #[must_use]
    pub(crate) fn through(mut self, agent: &str, context: &str) -> Self {
        self.acting = Some(ActingAgent { agent: agent.into(), context: context.into() });
        self
    }

    /// The same caller at the address of one agent: it reaches its tasks of that agent, and no others.
    #[must_use]
    pub fn at_agent(mut self, agent: impl Into<Arc<str>>) -> Self {
        self.only_agent = Some(agent.into());
        self
    }

    /// The same caller, who reaches its tasks of all agents.
    #[must_use]
    pub(crate) fn at_any_agent(mut self) -> Self {
        self.only_agent = None;
        self
    }

    /// The only agent whose tasks the caller reaches, if it is limited to one.
    pub fn only_agent(&self) -> Option<&str> {
        self.only_agent.as_deref()
    }

    /// The owner name of the caller's tasks: `name`, or `tenant/name`.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Like `owner`, without a copy of the text.
    pub(crate) fn shared_owner(&self) -> Arc<str> {
        Arc::clone(&self.owner)
    }

    /// Whether the caller acts under the operator's name.
    pub fn is_local(&self) -> bool {
        &*self.owner == LOCAL
    }

    /// The tenant whose shared data the caller uses.
    pub fn tenant(&self) -> &str {
        tenant_of(&self.owner)
    }

    /// What the caller may do in its tenant.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// The network address that the request came from, if known.
    pub fn address(&self) -> Option<&str> {
        self.from.as_deref()
    }

    /// Like `address`, without a copy of the text.
    pub(crate) fn shared_address(&self) -> Option<Arc<str>> {
        self.from.clone()
    }

    /// The id of the token that the caller presented, if this server issued it. Stored with the tasks it
    /// creates, so that all of them can be stopped when the token is revoked.
    pub fn credential(&self) -> Option<&str> {
        self.credential.as_deref()
    }

    /// Like `credential`, without a copy of the text.
    pub(crate) fn shared_credential(&self) -> Option<Arc<str>> {
        self.credential.clone()
    }

    /// Whether the caller may know that a task of this owner exists.
    pub fn sees(&self, owner: &str) -> bool {
        *self.owner == *owner
    }

    /// Whether the caller may know that a task of this owner and this agent exists.
    pub fn sees_task(&self, owner: &str, agent: &str) -> bool {
        self.sees(owner) && self.only_agent().is_none_or(|only| only == agent)
    }

    /// Whether the caller may do this to the resource of that name.
    pub fn may(&self, action: Action, kind: AccessKind, name: &str) -> bool {
        self.grants.allow(action, kind, name)
            && (kind != AccessKind::Memory
                || self.acting.as_ref().is_none_or(|acting| acting.may_touch(name)))
    }

    /// A common prefix of all names that begin with `prefix` and on which the action is allowed;
    /// `None` if there can be no such name.
    pub fn narrowed(&self, action: Action, kind: AccessKind, prefix: &str) -> Option<String> {
        let common = self.grants.common_prefix(action, kind);
        match (common.starts_with(prefix), prefix.starts_with(&common)) {
            (true, _) => Some(common),
            (false, true) => Some(prefix.to_owned()),
            (false, false) => None,
        }
    }
}

/// The tenant that an owner belongs to.
pub fn tenant_of(owner: &str) -> &str {
    owner.split_once('/').map_or(HOME_TENANT, |(tenant, _)| tenant)
}

/// The kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Reads the resource.
    Read,
    /// Changes the resource.
    Write,
    /// Makes the resource do something, such as running an agent.
    Execute,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Execute];

    /// The name in scopes, metadata and the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
        }
    }
}

/// The resource types of permissions and rate limits, each with the meaning of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// Tasks, streams and agents; named by the agent.
    A2a,
    /// The memory bank; named by the namespace.
    Memory,
    /// Workflows; named by the context.
    Sparc,
    /// The batch engine; all of it has the name `batchtools`.
    Batchtools,
    /// Tokens, the audit, other callers' tasks and tenants. Only granted by its name, never by `*`.
    Admin,
}

impl AccessKind {
    /// All resource types.
    pub const ALL: [Self; 5] = [Self::A2a, Self::Memory, Self::Sparc, Self::Batchtools, Self::Admin];

    /// The name in scopes, metadata and the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::A2a => "a2a",
            Self::Memory => "memory",
            Self::Sparc => "sparc",
            Self::Batchtools => "batchtools",
            Self::Admin => "admin",
        }
    }
}

/// The names of [`AccessKind::Admin`]: a closed list.
pub const ADMIN_NAMES: [&str; 8] =
    ["audit", "cards", "metrics", "server", "tasks", "tenants", "tokens", "webhooks"];

/// The set of a caller's grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants(Option<Arc<[Grant]>>);

impl Grants {
    /// Allows everything.
    pub fn all() -> Self {
        Self(None)
    }

    /// Allows everything but administration; metrics may be read.
    pub fn unverified() -> Self {
        static UNVERIFIED: LazyLock<Grants> = LazyLock::new(|| {
            let grant = |actions: &[Action], kind, names: &str| Grant {
                actions: actions.to_vec(),
                kind,
                names: names.to_owned(),
            };
            Grants::only([
                grant(&Action::ALL, None, "*"),
                grant(&[Action::Read], Some(AccessKind::Admin), "metrics"),
            ])
        });
        UNVERIFIED.clone()
    }

    /// Allows only these.
    pub fn only(grants: impl IntoIterator<Item = Grant>) -> Self {
        Self(Some(grants.into_iter().collect()))
    }

    /// Parses scopes separated by spaces. An empty text grants nothing.
    pub fn parse(scopes: &str) -> Result<Self, ScopeError> {
        let grants = scopes.split_whitespace().map(str::parse).collect::<Result<Vec<Grant>, _>>()?;
        match grants.len() > MAX_GRANTS {
            true => Err(ScopeError(format!("a caller has at most {MAX_GRANTS} scopes"))),
            false => Ok(Self::only(grants)),
        }
    }

    /// Refuses names of `admin` that do not exist: such a grant allows nothing, whatever its author meant. For new
    /// grants only; stored ones stay readable.
    pub fn check_admin_names(&self) -> Result<(), ScopeError> {
        let grants = self.0.iter().flat_map(|grants| grants.iter());
        for grant in grants.filter(|grant| grant.kind == Some(AccessKind::Admin)) {
            if !ADMIN_NAMES.iter().any(|name| wildcard(&grant.names, name)) {
                return Err(ScopeError(format!(
                    "admin has no name {:?}: its names are {}",
                    grant.names,
                    ADMIN_NAMES.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Whether they allow everything.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether they allow this. A caller that may execute an agent may also read, answer and cancel the
    /// resulting tasks: grants on tasks are always about the caller's own.
    pub fn allow(&self, action: Action, kind: AccessKind, name: &str) -> bool {
        let Some(grants) = &self.0 else { return true };
        grants.iter().any(|grant| grant.allows(action, kind, name))
            || (kind == AccessKind::A2a && name == TASKS && self.allow_some(Action::Execute, AccessKind::A2a))
    }

    /// Whether they allow this for at least one name.
    pub fn allow_some(&self, action: Action, kind: AccessKind) -> bool {
        match &self.0 {
            None => true,
            Some(grants) => grants.iter().any(|grant| grant.allows_some(action, kind)),
        }
    }

    /// The common prefix of all names for which they allow this.
    fn common_prefix(&self, action: Action, kind: AccessKind) -> String {
        let Some(grants) = &self.0 else { return String::new() };
        let literal = |grant: &Grant| grant.names.split('*').next().unwrap_or_default().to_owned();
        let begins = grants.iter().filter(|grant| grant.allows_some(action, kind)).map(literal);
        let common = |a: String, b: String| {
            a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
        };
        begins.reduce(common).unwrap_or_default()
    }

    /// Whether they allow everything that the others do: a caller cannot delegate more than it has.
    pub fn cover(&self, others: &Self) -> bool {
        match (&self.0, &others.0) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(others)) => others.iter().all(|other| other.is_covered_by(mine)),
        }
    }

    /// The actions that they allow on the resource of that name.
    pub fn actions(&self, kind: AccessKind, name: &str) -> Vec<Action> {
        Action::ALL.into_iter().filter(|action| self.allow(*action, kind, name)).collect()
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(grants) = &self.0 else { return f.write_str("*:* *:admin") };
        for (n, grant) in grants.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{grant}")?;
        }
        Ok(())
    }
}

/// One scope: actions × type × names, written `read,write:memory:team-*`. `*` stands for all actions, and for
/// all types but `admin`. Without names it covers all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    actions: Vec<Action>,
    kind: Option<AccessKind>,
    names: String,
}

impl Grant {
    /// These actions on the resources of one type whose name matches.
    pub(crate) fn of(actions: &[Action], kind: AccessKind, names: &str) -> Self {
        Self { actions: actions.to_vec(), kind: Some(kind), names: names.to_owned() }
    }

    /// Whether this grant allows the access.
    pub fn allows(&self, action: Action, kind: AccessKind, name: &str) -> bool {
        self.allows_some(action, kind) && wildcard(&self.names, name)
    }

    fn allows_some(&self, action: Action, kind: AccessKind) -> bool {
        let of_kind = match self.kind {
            Some(granted) => granted == kind,
            None => kind != AccessKind::Admin,
        };
        of_kind && self.actions.contains(&action)
    }
}

impl Grant {
    fn is_covered_by(&self, grants: &[Grant]) -> bool {
        let kinds = AccessKind::ALL.into_iter().filter(|kind| match self.kind {
            Some(only) => only == *kind,
            None => *kind != AccessKind::Admin,
        });
        // The other's pattern is matched as if it were a name: if its `*` falls within one of ours, ours
        // covers whatever it stands for.
        let mut each = kinds.flat_map(|kind| self.actions.iter().map(move |action| (*action, kind)));
        each.all(|(action, kind)| grants.iter().any(|grant| grant.allows(action, kind, &self.names)))
    }
}

/// Why a scope could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScopeError(String);

impl FromStr for Grant {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let wrong = |why: &str| {
            Err(ScopeError(format!(
                "{text:?} is no scope: {why}; write ACTIONS:TYPE[:NAMES], such as read,write:memory:team-*"
            )))
        };
        if text.len() > MAX_SCOPE {
            return Err(ScopeError(format!("a scope has at most {MAX_SCOPE} bytes")));
        }
        let mut parts = text.splitn(3, ':');
        let (Some(actions), Some(kind)) = (parts.next(), parts.next()) else {
            return wrong("it names no type");
        };
        let names = parts.next().unwrap_or("*");
        if names.is_empty() {
            return wrong("it has no names after the second colon");
        }
        let actions = match actions {
            "*" => Action::ALL.to_vec(),
            listed => {
                let mut actions = vec![];
                for name in listed.split(',') {
                    match Action::ALL.into_iter().find(|action| action.name() == name) {
                        Some(action) => actions.push(action),
                        None => return wrong("its actions are read, write, execute or *"),
                    }
                }
                actions
            }
        };
        let kind = match AccessKind::ALL.into_iter().find(|known| known.name() == kind) {
            None if kind == "*" => None,
            None => return wrong("its type is a2a, memory, sparc, batchtools, admin or *"),
            kind => kind,
        };
        Ok(Self { actions, kind, names: names.into() })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.actions.len() {
            3 => f.write_str("*")?,
            _ => {
                f.write_str(&self.actions.iter().map(|action| action.name()).collect::<Vec<_>>().join(","))?;
            }
        }
        write!(f, ":{}", self.kind.map_or("*", AccessKind::name))?;
        if self.names == "*" { Ok(()) } else { write!(f, ":{}", self.names) }
    }
}

/// Whether a name matches a pattern in which `*` stands for any characters. Linear in both lengths.
fn wildcard(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let last = parts.pop().unwrap_or("");
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scopes: &str, action: Action, kind: AccessKind, name: &str, allowed: bool) {
        let grants = Grants::parse(scopes).unwrap();
        assert_eq!(grants.allow(action, kind, name), allowed, "{scopes}: {action:?} {kind:?} {name}");
        assert_eq!(Grants::parse(&grants.to_string()).unwrap(), grants, "{scopes} is written as {grants}");
    }

    #[test]
    fn a_scope_allows_what_it_says_and_nothing_else() {
        use {AccessKind::*, Action::*};
        check("read:memory", Read, Memory, "notes", true);
        check("read:memory", Write, Memory, "notes", false);
        check("read:memory", Read, Sparc, "notes", false);
        check("read,write:memory:team-*", Write, Memory, "team-a", true);
        check("read,write:memory:team-*", Write, Memory, "other", false);
        check("read,write:memory:team-*", Execute, Memory, "team-a", false);
        check("*:memory:a*z", Execute, Memory, "az", true);
        check("*:memory:a*z", Execute, Memory, "abc", false);
        check("*:memory:a*b*c", Read, Memory, "axbxbc", true);
        check("*:memory:*:x", Read, Memory, "a:x", true);
        check("*:*", Execute, A2a, "travel", true);
        check("*:*", Read, Admin, "audit", false);
        check("read:admin", Read, Admin, "audit", true);
        check("read:a2a execute:a2a:echo", Execute, A2a, "echo", true);
        check("read:a2a execute:a2a:echo", Execute, A2a, "travel", false);
        check("execute:a2a:echo", Read, A2a, TASKS, true);
        check("execute:a2a:echo", Write, A2a, TASKS, true);
        check("execute:a2a:echo", Read, A2a, "registry", false);
        check("read:a2a", Write, A2a, TASKS, false);
        check("", Read, Memory, "notes", false);
    }

    #[test]
    fn a_request_without_credentials_may_do_everything_but_administer() {
        let caller = Caller::unverified();
        assert!(caller.is_local() && caller.tenant() == HOME_TENANT);
        for action in Action::ALL {
            for kind in [AccessKind::A2a, AccessKind::Memory, AccessKind::Sparc, AccessKind::Batchtools] {
                assert!(caller.may(action, kind, "anything"), "{action:?} {kind:?}");
            }
            for name in ["tokens", "audit", "tasks", "tenants", "what-comes-next"] {
                assert!(!caller.may(action, AccessKind::Admin, name), "{action:?} {name}");
                assert!(Caller::local().may(action, AccessKind::Admin, name));
            }
        }
        assert!(caller.may(Action::Read, AccessKind::Admin, "metrics"));
        // A task stores them as text.
        assert_eq!(&Grants::parse(&caller.grants().to_string()).unwrap(), caller.grants());
    }

    #[test]
    fn what_may_be_read_begins_with_what_all_scopes_begin_with() {
        let check = |scopes: &str, prefix: &str, narrowed: Option<&str>| {
            let caller = Caller::local().limited_to(Grants::parse(scopes).unwrap());
            let found = caller.narrowed(Action::Read, AccessKind::Memory, prefix);
            assert_eq!(found.as_deref(), narrowed, "{scopes} {prefix:?}");
        };
        check("read:memory", "", Some(""));
        check("read:memory:team-* write:memory:other", "", Some("team-"));
        check("read:memory:team-* read:memory:tea", "", Some("tea"));
        check("read:memory:team-*", "team-a", Some("team-a"));
        check("read:memory:team-*", "te", Some("team-"));
        check("read:memory:team-*", "x", None);
        check("read:memory:*-mine", "a", Some("a"));
        check("read:memory:gr\u{fc}n read:memory:gr\u{f6}n", "", Some("gr"));
        assert_eq!(Caller::local().narrowed(Action::Read, AccessKind::Memory, "a"), Some("a".into()));
    }

    #[test]
    fn nobody_covers_more_than_it_has() {
        let check = |mine: &str, others: &str, covered: bool| {
            let (mine, others) = (Grants::parse(mine).unwrap(), Grants::parse(others).unwrap());
            assert_eq!(mine.cover(&others), covered, "{mine} and {others}");
        };
        check("*:*", "read:memory:a* execute:a2a", true);
        check("*:*", "read:admin", false);
        check("*:* *:admin", "*:* read:admin", true);
        check("read:memory:team-*", "read:memory:team-a*", true);
        check("read:memory:team-*", "read:memory:team-a", true);
        check("read:memory:team-*", "read:memory:team*", false);
        check("read:memory:team-*", "read:memory", false);
        check("read:memory:team-*", "read,write:memory:team-a", false);
        check("read:a2a read:memory read:sparc read:batchtools", "read:*", true);
        check("read:a2a read:memory", "read:*", false);
        check("read:memory:a*b", "read:memory:a*c*b", true);
        check("read:memory:a*b", "read:memory:a*b*", false);
        assert!(Grants::all().cover(&Grants::all()));
        assert!(!Grants::parse("*:* *:admin").unwrap().cover(&Grants::all()));
    }

    #[test]
    fn a_scope_that_means_nothing_is_refused_with_the_reason() {
        for scope in
            ["memory", "look:memory", "read:everything", "read:memory:", "read,:memory", &"x".repeat(300)]
        {
            assert!(Grants::parse(scope).is_err(), "{scope}");
        }
        assert!(Grants::parse(&"read:a2a ".repeat(65)).is_err());
    }

    #[test]
    fn the_names_of_administration_are_a_closed_list() {
        for (scopes, known) in [
            ("read:admin", true),
            ("*:admin:*", true),
            ("read:admin:t*", true),
            ("read:admin:cards read:memory:foo", true),
            ("read:admin:foo", false),
            ("read:a2a read:admin:token", false),
            ("read:admin:x*", false),
        ] {
            assert_eq!(Grants::parse(scopes).unwrap().check_admin_names().is_ok(), known, "{scopes}");
        }
        assert!(Grants::all().check_admin_names().is_ok());
    }

    #[test]
    fn a_tenant_is_what_stands_before_the_first_slash() {
        for (owner, tenant) in [("local", HOME_TENANT), ("acme/ada", "acme"), ("acme/a/b", "acme")] {
            assert_eq!(Caller::named(owner).tenant(), tenant);
        }
    }
}
