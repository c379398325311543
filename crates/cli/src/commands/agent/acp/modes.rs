//! The modes of a session: the values of `--confirm`, and `plan`.

use serde_json::{Value, json};

/// The mode in which nothing is written.
pub(super) const PLAN: &str = "plan";

/// The modes: id, name and description.
const MODES: [(&str, &str, &str); 5] = [
    ("outside", "Ask outside", "Asks before what the sandbox does not contain"),
    ("writes", "Ask before changes", "Asks before changes and commands too"),
    ("refuse", "Never ask, refuse", "What the sandbox does not contain is refused"),
    ("allow", "Never ask, allow", "Everything runs without a question"),
    (PLAN, "Plan", "Reads and answers; nothing is written"),
];

/// The modes of a session in which `current` is the present one.
pub(super) fn state(current: &str) -> Value {
    let mode =
        |(id, name, description)| json!({"id": id, "name": name, "description": description});
    json!({"currentModeId": current, "availableModes": MODES.map(mode)})
}

/// The mode of this id.
pub(super) fn mode(id: &str) -> Option<&'static str> {
    MODES.iter().map(|(known, ..)| *known).find(|known| *known == id)
}

/// The ids of all modes.
pub(super) fn ids() -> String {
    MODES.map(|(id, ..)| id).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::CONFIRMS;

    #[test]
    fn modes_are_the_values_of_the_flag_and_plan() {
        let values = CONFIRMS.map(|(name, _)| name);
        assert_eq!(MODES.map(|(id, ..)| id), [&values[..], &[PLAN]].concat()[..]);
        assert_eq!(mode("allow"), Some("allow"));
        assert_eq!(mode("yes"), None);
    }
}
