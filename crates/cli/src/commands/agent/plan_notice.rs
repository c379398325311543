//! What the messages of requests say of a plan.
//!
//! Invariant: what the model knows of the plan follows from its messages, so that a request that is
//! taken back or a session that continues leaves it no wrong belief.

use api::Message;

/// What stands before the first request after the plan was begun or left.
const BEGUN: &str = "[From here on, plan: read and propose. Nothing can be written until the user \
                     ends the plan.]\n\n";
const LEFT: &str = "[The plan has ended: files can be written and commands run as before.]\n\n";

/// What the model is to be told before the next request; `None` if it knows.
pub(super) fn notice(messages: &[Message], is_plan: bool) -> Option<&'static str> {
    let of_user = messages.iter().rev().filter(|message| message.role == "user".into());
    let told = of_user.filter_map(Message::text).find_map(|text| {
        // The later one of a message that has both, as the summary of a conversation may.
        let places = [BEGUN, LEFT].map(|notice| text.rfind(notice));
        (places != [None, None]).then_some(places[0] > places[1])
    });
    match (told.unwrap_or_default(), is_plan) {
        (false, true) => Some(BEGUN),
        (true, false) => Some(LEFT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_what_it_does_not_know() {
        let check = |texts: &[&str], is_plan, expected| {
            let mut messages: Vec<Message> = texts.iter().map(|&it| Message::user(it)).collect();
            messages.push(Message::assistant(BEGUN));
            assert_eq!(notice(&messages, is_plan), expected, "{texts:?}");
        };
        let (begun, left) = (format!("place\n\n{BEGUN}do"), format!("{LEFT}do"));
        check(&["do"], false, None);
        check(&["do"], true, Some(BEGUN));
        check(&[&begun, "more"], true, None);
        check(&[&begun, "more"], false, Some(LEFT));
        check(&[&begun, &left], false, None);
        check(&[&begun, &left, "more"], true, Some(BEGUN));
        check(&[&format!("{begun}\n{left}")], true, Some(BEGUN));
    }
}
