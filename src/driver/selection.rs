//! The tunnels that a command is for.

/// The tunnels that a command is for. Lists and arrays of names are [`Named`](Self::Named), so that an empty list
/// selects none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every tunnel of the policy that the command can be for.
    All,
    /// The tunnels of these names.
    Named(Vec<String>),
}

impl<S: Into<String>> From<Vec<S>> for Selection {
    fn from(names: Vec<S>) -> Self {
        Self::Named(names.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Selection {
    fn from(names: [S; N]) -> Self {
        Self::Named(names.map(Into::into).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_selects_none() {
        assert_eq!(Selection::from(Vec::<String>::new()), Selection::Named(Vec::new()));
        assert_eq!(Selection::from(["site"]), Selection::Named(vec!["site".to_owned()]));
    }
}
