//! Which rule decides for which tensor.

use super::{Placed, Placement, Rule, RulePlace, TensorInfo, TensorKind, TensorMemory};
use crate::Error;
use backend::Mode;
use kernels::Isa;
use std::path::Path;
use std::sync::LazyLock;

/// What holds where users say nothing. A router's scores decide which experts are computed at
/// all, and its matrix is small; so is that which says how much shared experts count. Norms and
/// biases are f32 values in any case.
const DEFAULTS: &str = "
- match: {kind: router}
  place: {mode: exact}
- match: {name: '\\.ffn_gate_inp_shexp\\.weight$'}
  place: {mode: exact}
";

/// The built-in rules, for all families alike so far.
static BUILT_IN: LazyLock<Placement> = LazyLock::new(|| {
    Placement::parse(DEFAULTS, Path::new("built-in placement")).expect("a test reads them")
});

/// What one rule did.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    matched: usize,
    decided: usize,
    matrices: usize,
}

impl Placement {
    /// Decides for every tensor of a model that is computed in `mode` on `isa`, in their order.
    ///
    /// A rule that matches nothing, that decides nothing because earlier ones do, or that asks
    /// for what cannot be, is an error that names it.
    pub fn resolve(
        &self,
        tensors: &[TensorInfo],
        mode: Mode,
        isa: Isa,
    ) -> Result<Vec<Placed>, Error> {
        let mut uses = vec![Use::default(); self.rules.len()];
        let placed = tensors.iter().map(|tensor| {
            let rule = self.rules.iter().position(|rule| rule.matches.holds(tensor));
            self.count(tensor, rule, &mut uses);
            let said = rule.map_or_else(RulePlace::default, |rule| self.rules[rule].place);
            let decided = said.or(built_in(tensor)).decide(tensor, mode, isa);
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
            return Err("decides nothing: earlier rules match all that it matches");
        }
        if self.matrices == 0 && rule.place.wants_a_matrix() {
            return Err("expected to decide for a matrix, found only norms, biases and the like, \
                        which are held as f32 values and computed exactly");
        }
        Ok(())
    }
}

/// A head that shares the embedding's bytes takes them where the embedding does not.
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
