//! Planning: nothing is written until the plan is left. [`MadeAgent::work`] tells the model.

use super::maker::MadeAgent;
use anyhow::Result;

impl MadeAgent {
    /// Whether the model plans.
    pub fn is_planning(&self) -> bool {
        self.agent.policy.is_plan
    }

    /// Begins the plan: the tools are started anew with a read-only sandbox, and what may write
    /// elsewhere is refused. Jobs end.
    ///
    /// # Errors
    ///
    /// If the tools do not start; then nothing has changed.
    pub fn enter_plan(&mut self) -> Result<()> {
        self.set_plan(true)
    }

    /// Ends the plan: the tools are started anew as they were before. Jobs end.
    ///
    /// # Errors
    ///
    /// If the tools do not start; then nothing has changed.
    pub fn leave_plan(&mut self) -> Result<()> {
        self.set_plan(false)
    }

    fn set_plan(&mut self, is_plan: bool) -> Result<()> {
        if self.is_planning() == is_plan {
            return Ok(());
        }
        self.agent.policy.is_plan = is_plan;
        let started = self.restart_tools(&self.tools.clone());
        if started.is_err() {
            self.agent.policy.is_plan = !is_plan;
        }
        started
    }
}
