//! The mode of Dragoman, which decides what it writes in a cluster.

/// The mode that is in force, after `auto` is resolved. Each mode writes what the one before writes,
/// and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Dragoman's own objects and Events only.
    Observe,
    /// Nothing that the built-in claim controller handles.
    Assist,
    /// Also the whole claim lifecycle; the built-in controller must be off.
    Own,
}

impl Mode {
    /// Every mode, the one that writes least first.
    pub const ALL: [Self; 3] = [Self::Observe, Self::Assist, Self::Own];

    /// As the flag spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Assist => "assist",
            Self::Own => "own",
        }
    }
}
