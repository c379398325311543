//! Responses that are made without their client: polled, followed or cancelled by their id.

use crate::generate::answer::Answer;
use crate::generate::choices::Choices;
use crate::http::sse::Frame;
use crate::protocols::responses::answer::ResponseAnswer;
use crate::protocols::responses::running::Running;
use std::sync::Arc;

/// Makes the response; `answer` keeps it.
pub(crate) async fn run(choices: Choices, mut answer: ResponseAnswer, running: Arc<Running>) {
    running.tell(answer.open());
    running.show(answer.response());
    running.tell(made(choices, &mut answer, &running).await);
    running.end();
}

/// Tells all events but the last ones, which it gives.
async fn made(mut choices: Choices, answer: &mut ResponseAnswer, running: &Running) -> Vec<Frame> {
    loop {
        let event = tokio::select! {
            biased;
            () = running.cancelled() => {
                drop(choices);
                return answer.cancel();
            }
            event = choices.next() => event,
        };
        match event {
            Some(Ok((index, event))) => running.tell(answer.frames(index, event)),
            Some(Err(error)) => return answer.broken(&error),
            None => return answer.close(choices.usage()),
        }
    }
}
