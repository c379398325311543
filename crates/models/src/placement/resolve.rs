//! Applies rules to tensors.

use super::rules::{Placed, Placement, Rule, RulePlace, TensorMemory};
use crate::error::Error;
use crate::placement::tensor::TensorInfo;
use backend::Backend;
use formats::layers::TensorKind;
use std::path::Path;
use std::sync::LazyLock;

/// Rules that apply after the user's. Routers choose experts, gates scale shared ones, decays and
/// factors of residual streams apply again and again, and compressed rows stand for many positions;
/// these matrices are small, so they are computed exactly. Norms and biases are always f32 values.
const DEFAULTS: &str = "
- match: {kind: [router, compressor, hyper_connection]}
  place: {mode: exact}
- match: {name: '\\.(ffn_gate_inp_shexp|ssm_alpha|ssm_beta)\\.weight$'}
  place: {mode: exact}
";

/// The built-in rules, the same for all families.
static BUILT_IN: LazyLock<Placement> = LazyLock::new(|| {
    Placement::parse(DEFAULTS, Path::new("built-in placement")).expect("a test reads them")
});

/// Counts of what one rule matched and decided.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    matched: usize,
    decided: usize,
    matrices: usize,
}

impl Placement {
    /// Decides the placement of every tensor, in order, of a model that `backend` computes.
    ///
    /// A rule that matches nothing, that decides nothing because earlier rules do, or that is
    /// impossible, is an error that names the rule.
    ///
    /// # Errors
    /// If a rule is impossible for these tensors or has no effect.
    pub fn resolve(
        &self,
        tensors: &[TensorInfo],
        backend: &dyn Backend,
    ) -> Result<Vec<Placed>, Error> {
        let mut uses = vec![Use::default(); self.rules.len()];
        let placed = tensors.iter().map(|tensor| {
            let rule = self.rules.iter().position(|rule| rule.matches.holds(tensor));
            self.count(tensor, rule, &mut uses);
            let said = rule.map_or_else(RulePlace::default, |rule| self.rules[rule].place);
            let decided = said.or(built_in(tensor)).decide(tensor, backend);
            match (decided, rule) {
                (Ok(placed), _) => Ok(Placed { rule: rule.map(|rule| rule + 1), ..placed }),
                (Err(problem), Some(rule)) => Err(self.error(&self.rules[rule], problem)),
                (Err(problem), None) => Err(BUILT_IN.error(&BUILT_IN.rules[0], problem)),
            }
        });
        let mut placed: Vec<_> = placed.collect::<Result<_, _>>()?;
        count_shared(tensors, &mut placed);
        for (rule, used) in self.rules.iter().zip(uses) {
            used.check(rule).map_err(|problem| self.error(rule, problem))?;
        }
        Ok(placed)
    }

    fn count(&self, tensor: &TensorInfo, decides: Option<usize>, uses: &mut [Use]) {
        for (index, (rule, used)) in self.rules.iter().zip(uses).enumerate() {
            used.matched += usize::from(rule.matches.holds(tensor));
            used.decided += usize::from(decides == Some(index));
            used.matrices += usize::from(decides == Some(index) && !tensor.is_vector());
        }
    }

    fn error(&self, rule: &Rule, problem: impl Into<String>) -> Error {
        let (file, rule) = (self.file.clone(), rule.label.clone());
        Error::Placement { file, rule, problem: problem.into() }
    }
}

impl Use {
    fn check(self, rule: &Rule) -> Result<(), &'static str> {
        if self.matched == 0 {
            return Err("expected to match a tensor of the model, found none");
        }
        if self.decided == 0 {
            return Err("decides nothing: earlier rules match all of its tensors");
        }
        if self.matrices == 0 && rule.place.wants_a_matrix() {
            return Err("expected to decide for a matrix, found only norms, biases and the like, \
                        which are held as f32 values and computed exactly");
        }
        Ok(())
    }
}

/// Counts the bytes of a head that shares the embedding's weights, if the embedding is held in
/// another form.
fn count_shared(tensors: &[TensorInfo], placed: &mut [Placed]) {
    let as_stored =
        |placed: &Placed| matches!(placed.memory, TensorMemory::Mapped | TensorMemory::Locked);
    let embed = tensors.iter().position(|tensor| tensor.kind == TensorKind::Embed);
    if embed.is_none_or(|embed| as_stored(&placed[embed])) {
        return;
    }
    for (tensor, placed) in tensors.iter().zip(placed) {
        if tensor.kind == TensorKind::Head && tensor.bytes == 0 && as_stored(placed) {
            placed.bytes = tensor.copied_bytes(tensor.ty);
        }
    }
}

fn built_in(tensor: &TensorInfo) -> RulePlace {
    let rule = BUILT_IN.rules.iter().find(|rule| rule.matches.holds(tensor));
    rule.map_or_else(RulePlace::default, |rule| rule.place)
}
