//! The revisions of the protocol, oldest first.

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum McpVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl McpVersion {
    /// All revisions, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// The newest one that has sessions: the response to an unknown one.
    pub const NEWEST_WITH_SESSIONS: Self = Self::V2025_11_25;

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Whether every request is independent of the others.
    pub fn is_stateless(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// The dialect name stored with tasks.
    pub fn dialect(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "mcp/2024-11-05",
            Self::V2025_03_26 => "mcp/2025-03-26",
            Self::V2025_06_18 => "mcp/2025-06-18",
            Self::V2025_11_25 => "mcp/2025-11-25",
            Self::V2026_07_28 => "mcp/2026-07-28",
        }
    }

    /// The revision for a client that requested `wanted` in `initialize`: that one if it has sessions, else the
    /// newest that has.
    pub fn negotiate(wanted: &str) -> Self {
        Self::parse(wanted).filter(|version| !version.is_stateless()).unwrap_or(Self::NEWEST_WITH_SESSIONS)
    }
}
