//! Routed experts: the device chooses the experts of each row, orders the choices by expert, and
//! multiplies each expert's weights with all its rows.
//!
//! A choice of an expert that is held here is a slot. Slots have the order of their experts, then
//! that of their rows; the output of a slot depends on its own row only.

mod plan;
mod route;

use crate::gpu::{Access, Kernel, Words};
use crate::parts::{EACH, EXP_TO_ONE, SIGMOID, dealt};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::experts::{ExpertGroup, ExpertWork, Projection, Projections};
use crate::webgpu::held::form::InputForm;
use crate::webgpu::held::matrices::{HeldMatrix, NONE};
use crate::webgpu::map::{GATED, gate, gate_kind};
use crate::webgpu::products::{
    GroupTable, PlannedSource, PlannedTiles, Product, Source, Spread, chunks_of,
};
use crate::wgsl::params;
use backend::{Buffer, Error, Experts, ExpertsSpec, Matrix};
use plan::Plan;

static GATES: Kernel = Kernel {
    name: "gates of experts",
    source: &[
        GatesParams::WGSL,
        gate::WGSL,
        include_str!("../shaders/experts/gates.wgsl"),
        GATED,
        SIGMOID,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Write, Access::Write, Access::Write, Access::Read, Access::Read],
};
static COMBINE: Kernel = Kernel {
    name: "sums of experts",
    source: &[CombineParams::WGSL, include_str!("../shaders/experts/combine.wgsl"), EACH],
    bindings: &[Access::Write, Access::Write, Access::Read, Access::Write],
};

params! {
    struct CombineParams {
        count: u32,
        width: u32,
        chosen: u32,
        first: u32,
        biased: u32,
        weighed: u32,
    }
}

params! {
    struct GatesParams {
        count: u32,
        width: u32,
        kind: u32,
        alpha: f32,
        limit: f32,
        biased: u32,
        experts_at: u32,
        weights_at: u32,
        weighed: u32,
        plain: u32,
    }
}

/// The workspace of a step, and its plan.
struct ExpertStep {
    choices: Words,
    words: Words,
    gate: Words,
    up: Words,
    down: Words,
    plan: Plan,
}

impl WebGpu {
    /// Takes the experts of a layer and allocates their workspace.
    ///
    /// # Errors
    /// Unless the experts are alike and their router can choose among them, or if there is not
    /// enough memory.
    pub(crate) fn add_experts(&mut self, spec: ExpertsSpec) -> Result<usize, Error> {
        self.check_experts(&spec)?;
        let slots = spec.rows.saturating_mul(spec.routing.chosen);
        let up = self.matrices.get(spec.up[0]);
        let (width, hidden) = (up.rows, up.cols);
        let sizes = [
            slots.saturating_mul(3),
            Plan::words(spec.held(), slots),
            slots.saturating_mul(width),
            if spec.has_gates() { slots.saturating_mul(width) } else { 1 },
            slots.saturating_mul(hidden),
        ];
        let mut work = std::mem::take(&mut self.expert_work);
        let ExpertWork { choices, plan, gate, up, down } = &mut work;
        for (words, kept) in sizes.into_iter().zip([choices, plan, gate, up, down]) {
            if kept.as_ref().is_none_or(|kept| kept.len() < words) {
                if let Some(old) = kept.take() {
                    self.gpu.free(old);
                }
                *kept = Some(self.gpu.zeroed(words)?);
            }
        }
        self.expert_work = work;
        for (at, all) in spec.kinds().enumerate() {
            let HeldMatrix { form, cols, .. } = *self.matrices.get(all[0]);
            let inward = at < spec.inward().count();
            let apart = inward && self.orders_of(all).len() == 1;
            self.reserve_inputs(form.inputs, if apart { spec.rows } else { slots }, cols)?;
        }
        self.experts.push(ExpertGroup { spec, projections: None });
        Ok(self.experts.len() - 1)
    }

    fn check_experts(&self, spec: &ExpertsSpec) -> Result<(), Error> {
        if let Some(problem) = spec.broken() {
            return Err(Error::Experts(problem));
        }
        route::check(&spec.routing, spec.count)?;
        let alike = |all: &[Matrix]| {
            let first = self.matrices.get(all[0]);
            all.iter().map(|matrix| self.matrices.get(*matrix)).all(|other| {
                let shape = (other.rows, other.cols) == (first.rows, first.cols);
                shape && std::ptr::eq(other.form, first.form)
            })
        };
        if !spec.kinds().all(alike) {
            let name = &self.matrices.get(spec.up[0]).name;
            let problem = format!("the experts beginning with {name} are not stored alike");
            return Err(Error::Experts(problem));
        }
        Ok(())
    }

    /// The orders of columns of matrices; one if it is that of all.
    fn orders_of(&self, matrices: &[Matrix]) -> Vec<u32> {
        let mut orders: Vec<_> =
            matrices.iter().map(|matrix| self.matrices.get(*matrix).order_at).collect();
        if orders.iter().all(|order| *order == orders[0]) {
            orders.truncate(1);
        }
        orders
    }

    /// The projections of a layer, whose tables are made at the first call.
    fn projections(&mut self, experts: Experts) -> Result<Projections, Error> {
        if let Some(made) = &self.experts[experts.0].projections {
            return Ok(made.clone());
        }
        let spec = self.experts[experts.0].spec.clone();
        let inward = spec.inward().map(|all| self.projection(all)).collect::<Result<_, _>>()?;
        let made = Projections { inward, down: self.projection(&spec.down)? };
        self.experts[experts.0].projections = Some(made.clone());
        Ok(made)
    }

    fn projection(&mut self, matrices: &[Matrix]) -> Result<Projection, Error> {
        let places = self.matrices.table(matrices)?;
        let orders = self.orders_of(matrices);
        let mut table = places.as_flattened().to_vec();
        table.extend(matrices.iter().map(|matrix| self.matrices.get(*matrix).order_at));
        let table = self.gpu.filled(&table)?;
        Ok(Projection { matrix: matrices[0], chunks: chunks_of(&places), table, orders })
    }

    /// Computes what the chosen experts give for each row of `x`, into `out`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn mix(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.upload()?;
        let Projections { inward, down } = self.projections(experts)?;
        let step = self.plan_step(logits, experts, tokens);
        let hidden = self.matrices.get(inward[0].matrix).cols;
        let x = self.buffer_of(x).words.clone();
        let mut taken = None;
        for (projection, out) in inward.iter().zip([&step.gate, &step.up]) {
            let form = self.matrices.get(projection.matrix).form;
            let key = (form.inputs, projection.orders.clone());
            if taken.as_ref() != Some(&key) {
                self.take_rows((&x, hidden), form.inputs, projection, &step)?;
                taken = Some(key);
            }
            let of_row = projection.orders.len() == 1;
            let rows_at = if of_row { step.plan.rows_at } else { NONE };
            self.multiply_slots(projection, out, rows_at, &step);
        }
        self.apply_gates(experts, &step);
        let HeldMatrix { form, cols: width, .. } = *self.matrices.get(down.matrix);
        let source = slots(&step.gate, width, NONE, &step);
        let table = (&down.table, down.orders_at());
        self.take_planned(form.inputs, width, &source, table, Some(&step.words))?;
        self.multiply_slots(&down, &step.down, NONE, &step);
        self.combine(experts, out, hidden, &step);
        Ok(())
    }

    /// Chooses the experts of rows and plans their products.
    fn plan_step(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) -> ExpertStep {
        let spec = &self.experts[experts.0].spec;
        let rows = tokens.len();
        assert!(rows <= spec.rows, "rows of the workspace");
        let ExpertWork { choices, plan, gate, up, down } = &self.expert_work;
        let [choices, words, gate, up, down] = [choices, plan, gate, up, down]
            .map(|words| words.clone().expect("allocated with the experts"));
        let (first, held, chosen) = (spec.first, spec.held(), spec.routing.chosen);
        self.route(logits, experts, &choices, tokens);
        let plan = Plan::new(first, held, chosen, rows);
        plan.make(&mut self.gpu, &choices, &words);
        ExpertStep { choices, words, gate, up, down, plan }
    }

    /// Takes the inputs of gates or ups: rows where experts have one order of columns, else slots.
    fn take_rows(
        &mut self,
        (x, hidden): (&Words, usize),
        form: InputForm,
        projection: &Projection,
        step: &ExpertStep,
    ) -> Result<(), Error> {
        if let [order] = projection.orders[..] {
            let source = Source {
                x: x.clone(),
                row: hidden,
                first: 0,
                group: 0,
                groups: 1,
                count: step.plan.rows,
                planned: None,
            };
            return self.take(form, hidden, &source, &[order]);
        }
        let source = slots(x, hidden, step.plan.rows_at, step);
        let table = (&projection.table, projection.orders_at());
        self.take_planned(form, hidden, &source, table, Some(&step.words))
    }

    /// Multiplies inputs with the weights of the expert of each slot.
    fn multiply_slots(
        &mut self,
        projection: &Projection,
        out: &Words,
        rows_at: u32,
        step: &ExpertStep,
    ) {
        let HeldMatrix { form, rows, cols, .. } = *self.matrices.get(projection.matrix);
        let Plan { kernel, tiles, tiles_at, .. } = step.plan;
        let product = Product {
            form,
            cols,
            outputs: rows,
            plan: Some(step.words.clone()),
            steps: [1, 0],
            out: out.clone(),
            spread: Spread { row: rows, first: 0, group: 0 },
            groups: 1,
            rows: step.plan.slots,
            planned: Some(PlannedTiles { kernel, tiles, tiles_at, rows_at }),
        };
        self.multiply(&product, GroupTable::Kept(&projection.table), &projection.chunks);
    }

    fn apply_gates(&mut self, experts: Experts, step: &ExpertStep) {
        let spec = &self.experts[experts.0].spec;
        let width = self.matrices.get(spec.up[0]).rows;
        let (kind, alpha, limit) = gate_kind(spec.kind);
        let params = GatesParams {
            count: (step.plan.slots * width) as u32,
            width: width as u32,
            kind,
            alpha,
            limit,
            biased: u32::from(spec.biases.is_some()),
            experts_at: step.plan.experts_at,
            weights_at: step.plan.weights_at,
            weighed: u32::from(spec.weighs_inputs),
            plain: u32::from(!spec.has_gates()),
        };
        let inbox = self.gpu.inbox();
        let biases = spec.biases.map(|[gate, up, _]| [gate, up].map(|bias| &self.vectors[bias.0]));
        let [gate_bias, up_bias] = biases.unwrap_or([&inbox; 2]);
        let bound = [&step.gate, &step.up, &step.words, gate_bias, up_bias];
        self.gpu.run(&GATES, dealt(step.plan.slots * width), &bound, &params);
    }

    fn combine(&mut self, experts: Experts, out: Buffer, hidden: usize, step: &ExpertStep) {
        let spec = &self.experts[experts.0].spec;
        let count = step.plan.rows * hidden;
        let params = CombineParams {
            count: count as u32,
            width: hidden as u32,
            chosen: spec.routing.chosen as u32,
            first: spec.first as u32,
            biased: u32::from(spec.biases.is_some()),
            weighed: u32::from(spec.weighs_inputs),
        };
        let inbox = self.gpu.inbox();
        let bias = spec.biases.map_or(&inbox, |[.., bias]| &self.vectors[bias.0]);
        let bound = [&step.choices, &step.down, bias, &self.buffers[out.0].words];
        self.gpu.run(&COMBINE, dealt(count), &bound, &params);
    }
}

/// The slots of a step as inputs, each of `width` values; `rows_at` as in [`PlannedSource`].
fn slots(x: &Words, width: usize, rows_at: u32, step: &ExpertStep) -> Source {
    let groups_at = step.plan.experts_at;
    Source {
        x: x.clone(),
        row: width,
        first: 0,
        group: 0,
        groups: 1,
        count: step.plan.slots,
        planned: Some(PlannedSource { total_at: 0, rows_at, groups_at }),
    }
}
